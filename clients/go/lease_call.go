package weir

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/OWNER/weir/clients/go/internal/hold"
	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc/status"
)

// leaseCall is a request of a lease in flight.
type leaseCall struct {
	lease   *lease
	request hold.Request
	message *weirv1.LeaseRequest
	// The answer must arrive by then.
	deadline time.Time
	// The circuit breaker's.
	permit permit
	// The error of the first attempt, if it is retried.
	failed atomic.Pointer[Error]
	// Closed once the answer, or the error, is set.
	done    chan struct{}
	answer  *weirv1.LeaseResponse
	failure *Error
	// The service rejected the stream, and did not serve the call.
	rejected bool
}

func (c *leaseCall) expired() bool { return !time.Now().Before(c.deadline) }

// late returns the error of a call that is not answered in time.
func (c *leaseCall) late() error {
	if failed := c.failed.Load(); failed != nil {
		// The first attempt's error says more than that no time was left for a retry.
		return failed
	}
	return errLate
}

// send queues a request for the stream. It returns no call if the deadline is over, the circuit breaker is open, the queue is full, or the
// client is closed.
func (s *leases) send(l *lease, request hold.Request, summaryOnly bool, deadline time.Time) (*leaseCall, *Error) {
	if !time.Now().Before(deadline) {
		// No sign of an outage: the caller has used up its time.
		return nil, asError(errLate)
	}
	permit, failure := s.breaker.enter()
	if failure != nil {
		return nil, failure
	}
	call := &leaseCall{
		lease: l, request: request, message: l.message(request, summaryOnly), deadline: deadline, permit: permit, done: make(chan struct{}),
	}
	if !s.enqueue(call) {
		s.breaker.leave(permit, unknown)
		return nil, nil
	}
	return call, nil
}

// enqueue reports whether the call is queued, and so will be finished.
func (s *leases) enqueue(call *leaseCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	if !s.serving {
		s.serving = true
		s.running.Go(func() { s.stream.run(s.ctx) })
	}
	select {
	case s.stream.queue <- call:
		return true
	default:
		return false
	}
}

// renew sends a request for which no check waits. The caller must hold the lease's lock.
func (s *leases) renew(l *lease, request hold.Request) {
	if call, _ := s.send(l, request, true, time.Now().Add(l.timeout())); call == nil {
		l.machine.Lost(request.Lease, request.Sequence, s.now())
	}
}

// ask decides a check by the request of its lease. If the service does not serve it, served is false, and the check must be an ordinary
// one.
func (s *leases) ask(ctx context.Context, step *leaseStep, request *Request, until time.Time) (
	answer *weirv1.CheckResponse, failure *Error, served bool) {
	l := step.lease
	call, failure := s.send(l, step.request, request.message.SummaryOnly, until)
	if call == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.machine.Lost(step.request.Lease, step.request.Sequence, s.now())
		return nil, failure, failure != nil
	}
	bounded, cancel := context.WithDeadline(ctx, call.deadline)
	defer cancel()
	select {
	case <-call.done:
		return call.answer.GetDecision(), call.failure, !call.rejected
	case <-bounded.Done():
	}
	if ctx.Err() != nil {
		return nil, asError(status.FromContextError(ctx.Err()).Err()), true
	}
	return nil, asError(call.late()), true
}

// finish passes an answer, or an error, to the lease, the circuit breaker and the waiting check.
func (s *leases) finish(call *leaseCall, answer *weirv1.LeaseResponse, err error) {
	failure := asError(err)
	if e := answer.GetDecision().GetError(); e != nil {
		failure = entryError(e)
		failure.Field = strings.TrimPrefix(failure.Field, "check.")
	}
	call.answer, call.failure, call.rejected = answer, failure, errors.Is(err, errNotServed)
	s.tell(call)
	result := outcomeOf(s.ctx, false, failure)
	if call.rejected {
		result = unknown
	}
	s.breaker.leave(call.permit, result)
	close(call.done)
}

func (s *leases) tell(call *leaseCall) {
	l := call.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	answer, now := &hold.Answer{Lease: call.request.Lease, Sequence: call.request.Sequence}, s.now()
	switch {
	case call.failure == nil:
		answer = leaseAnswer(call.answer)
		l.heard(call.request.Cost, call.answer, now)
	case call.rejected && l.machine.TTL() == 0:
		// Like a key that cannot be leased: its terms are not requested again for a second.
	default:
		l.machine.Lost(answer.Lease, answer.Sequence, now)
		return
	}
	if request, send := l.machine.Answered(answer, now); send {
		s.renew(l, request)
	}
}
