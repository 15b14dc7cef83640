package weir

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Client is a connection to Weir for the whole process. It is safe for concurrent use.
type Client struct {
	conn      *grpc.ClientConn
	service   weirv1.RateLimiterClient
	deadline  time.Duration
	onFailure FailureMode
	retries   int
	breaker   *breaker
	telemetry *telemetry
	log       *outageLog
	// Nil: each check is a unary call.
	coalescer *coalescer
	leases    *leases
	// Whether checks without UseLease may use leases.
	lease  bool
	closed atomic.Bool
}

// New connects to a target without waiting for the connection. A target is host:port, unix:PATH, dns:///NAME:PORT, or a list
// host:port,host:port. Calls are balanced over all addresses. New fails only for an invalid configuration: an unreadable file, a malformed
// target.
func New(target string, options ...Option) (*Client, error) {
	config := defaults()
	for _, option := range options {
		option(&config)
	}
	conn, bearer, err := dial(target, &config)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	c := &Client{
		conn:      conn,
		service:   weirv1.NewRateLimiterClient(conn),
		deadline:  config.deadline,
		onFailure: config.onFailure,
		retries:   config.retries,
		breaker:   &config.breaker,
		log:       newOutageLog(config.logger),
		lease:     config.lease,
	}
	if c.telemetry, err = newTelemetry(&config, target, c.breaker); err != nil {
		conn.Close()
		return nil, fmt.Errorf("weir: %w", err)
	}
	// Connect now, so that the first check does not wait for it.
	conn.Connect()
	if config.inFlight > 0 {
		c.coalescer = newCoalescer(c.service, bearer, config.inFlight, config.deadline/2)
	}
	c.leases = newLeases(c.service, c.breaker)
	return c, nil
}

// Close returns leased units to the service, within the deadline of a call, and closes the connection. Calls in flight and later
// calls fail with ErrUnavailable, so OnFailure applies to them.
func (c *Client) Close() error {
	c.closed.Store(true)
	c.leases.close(c.deadline)
	if c.coalescer != nil {
		c.coalescer.close()
	}
	c.telemetry.close()
	return c.conn.Close()
}

// BreakerState returns the state of the circuit breaker.
func (c *Client) BreakerState() BreakerState {
	return c.breaker.state()
}

// Check decides one key: every limit on its path, in one atomic step.
func (c *Client) Check(ctx context.Context, key Key, options ...CheckOption) (Decision, error) {
	decision, step := c.decide(key, options)
	if step.verdict == leaseDecides {
		c.telemetry.countLeased(ctx, step.lease, decision.Allowed)
		return decision, nil
	}
	request := NewRequest(key, options...)
	ctx, observed := c.telemetry.begin(ctx, request.message.GetDomain())
	answer, failure := c.ask(ctx, &request, &step)
	decision, err := settle(newDecision(answer), failure, c.mode(&request))
	observed.end(decision, err)
	return decision, err
}

// decide decides a check by a lease if it can, or returns the step that decides it.
func (c *Client) decide(key Key, options []CheckOption) (Decision, leaseStep) {
	domain, cost := "", int64(1)
	leasable := c.lease
	if len(options) > 0 {
		request := scratch.Get().(*Request)
		for _, option := range options {
			option(request)
		}
		leasable = request.leasable(c.lease)
		domain, cost = request.message.GetDomain(), request.cost()
		request.message.Reset()
		*request = Request{message: request.message}
		scratch.Put(request)
	}
	if !leasable {
		return Decision{}, leaseStep{}
	}
	return c.leases.decide(domain, key, cost)
}

// scratch holds requests to apply options to, so that a check decided by a lease allocates none.
var scratch = sync.Pool{New: func() any { return &Request{message: &weirv1.CheckRequest{}} }}

// ask has the service decide, by the request of a lease or by a check.
func (c *Client) ask(ctx context.Context, request *Request, step *leaseStep) (answer *weirv1.CheckResponse, failure *Error) {
	if step.verdict == leaseAsks {
		until := time.Now().Add(cmp.Or(request.deadline, c.deadline))
		answer, failure, served := c.leases.ask(ctx, step, request, until)
		if served {
			return answer, failure
		}
		// 0 would mean the client's deadline.
		request.deadline = max(time.Until(until), 1)
	}
	answer, failure = c.check(ctx, request)
	if failure == nil && refusedForNow(answer) {
		c.leases.checked(step, request.cost(), answer)
	}
	return answer, failure
}

func (c *Client) check(ctx context.Context, request *Request) (answer *weirv1.CheckResponse, failure *Error) {
	if c.retries > 0 {
		request.identify()
	}
	failure = c.call(ctx, request.deadline, true,
		func(ctx context.Context, options ...grpc.CallOption) (err error) {
			if c.coalescer != nil {
				var sent bool
				if answer, sent, err = c.coalescer.check(ctx, request.message); sent {
					return err
				}
			}
			answer, err = c.service.Check(ctx, request.message, options...)
			return err
		})
	return answer, failure
}

// Reset removes the state of a key: its next check finds it full, as if never used. It reports whether the key had state.
func (c *Client) Reset(ctx context.Context, domain string, key Key) (removed bool, err error) {
	return c.reset(ctx, &weirv1.ResetRequest{Domain: domain, Key: key})
}

// ResetSubtree removes the states of a key and of all keys below it. It reports whether any of them had state.
func (c *Client) ResetSubtree(ctx context.Context, domain string, key Key) (removed bool, err error) {
	return c.reset(ctx, &weirv1.ResetRequest{Domain: domain, Key: key, Subtree: true})
}

func (c *Client) reset(ctx context.Context, request *weirv1.ResetRequest) (bool, error) {
	var answer *weirv1.ResetResponse
	failure := c.call(ctx, 0, true, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = c.service.Reset(ctx, request, options...)
		return err
	})
	if failure != nil {
		return false, failure
	}
	// Older servers set only existed, which is about the key itself.
	return answer.GetRemoved() || answer.GetExisted(), nil
}

func (c *Client) mode(request *Request) FailureMode {
	if request.onFailure != nil {
		return *request.onFailure
	}
	return c.onFailure
}

// call sends a call within the deadline (0: the client's). If it is repeatable, it is retried after UNAVAILABLE.
func (c *Client) call(ctx context.Context, deadline time.Duration, repeatable bool,
	send func(context.Context, ...grpc.CallOption) error) *Error {
	if deadline < 0 {
		// No sign of an outage: the caller has used up its time.
		return asError(errLate)
	}
	permit, failure := c.breaker.enter()
	if failure != nil {
		return failure
	}
	if deadline == 0 {
		deadline = c.deadline
	}
	end, ok := ctx.Deadline()
	callers := ok && time.Until(end) < deadline
	bounded, cancel := context.WithTimeout(outgoing(ctx), deadline)
	defer cancel()
	failure = asError(send(bounded))
	for n := 0; n < c.retries && repeatable && failure != nil && failure.Code == codes.Unavailable; n++ {
		// A retry waits for a connection, since the first attempt failed without one.
		again := asError(send(bounded, grpc.WaitForReady(true)))
		if again != nil && bounded.Err() != nil {
			// The first attempt's error says more than that no time was left for a retry.
			break
		}
		failure = again
	}
	c.breaker.leave(permit, outcomeOf(ctx, callers, failure))
	if failure != nil && failure.Code == codes.Canceled && ctx.Err() == nil && c.closed.Load() {
		// gRPC's status is Canceled, but the caller has cancelled nothing.
		return asError(errClosed)
	}
	return failure
}

// outcomeOf takes whether the deadline of the call was the caller's.
func outcomeOf(ctx context.Context, callers bool, failure *Error) outcome {
	switch {
	case failure == nil:
		return answered
	case failure.unsent, failure.Code == codes.Canceled:
		return unknown
	case !failure.Outage():
		return answered
	// A deadline of the caller's context does not count either: the clients of a gRPC server set it, and could open the circuit breaker.
	// gRPC ends a call at its deadline before the timer of ctx has fired.
	case callers && failure.Code == codes.DeadlineExceeded, ctx.Err() != nil:
		return unknown
	default:
		return outage
	}
}
