package weir

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The pause after the service rejected the stream.
const leaseStreamPause = time.Second

// errNotServed means that the service rejected the stream (UNIMPLEMENTED, RESOURCE_EXHAUSTED, PERMISSION_DENIED), and carried out none of
// its requests.
var errNotServed = errors.New("the service serves no stream of leases")

// leaseStream carries the requests of all leases. It opens a stream for the first request, and another for the next request after one has
// ended.
type leaseStream struct {
	service weirv1.RateLimiterClient
	// One entry for each lease, so that it is never full.
	queue chan *leaseCall
	// Called with the answer, or the error.
	finish func(*leaseCall, *weirv1.LeaseResponse, error)
	// The service rejected a stream: none is opened before then.
	rejectedUntil time.Time
}

func newLeaseStream(service weirv1.RateLimiterClient, finish func(*leaseCall, *weirv1.LeaseResponse, error)) *leaseStream {
	return &leaseStream{service: service, queue: make(chan *leaseCall, maxLeases), finish: finish}
}

// run serves requests until the context ends.
func (s *leaseStream) run(ctx context.Context) {
	var open []*leaseCall
	for {
		if len(open) == 0 {
			select {
			case <-ctx.Done():
				s.drain()
				return
			case call := <-s.queue:
				open = append(open, call)
			}
		}
		switch {
		case open[0].expired():
			s.finish(open[0], nil, open[0].late())
			open = open[1:]
		case time.Now().Before(s.rejectedUntil):
			s.finish(open[0], nil, errNotServed)
			open = open[1:]
		default:
			open = s.serve(ctx, open)
		}
	}
}

var (
	errStuck  = status.Error(codes.Unavailable, "the stream of leases does not answer")
	errLate   = status.Error(codes.DeadlineExceeded, "no answer in time")
	errClosed = status.Error(codes.Unavailable, "the client is closed")
)

func (s *leaseStream) drain() {
	for {
		select {
		case call := <-s.queue:
			s.finish(call, nil, errClosed)
		default:
			return
		}
	}
}

// serve opens a stream and works until it ends. It returns the calls to retry, oldest first.
func (s *leaseStream) serve(ctx context.Context, first []*leaseCall) []*leaseCall {
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFlight(cancel, first)
	// A retry waits for a connection, since the first attempt failed without one.
	stream, err := s.service.Lease(streaming, grpc.WaitForReady(first[0].failed.Load() != nil))
	if err == nil {
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			s.send(streaming, stream, first, f)
		}()
		err = s.receive(stream, f)
		cancel()
		<-sent
	}
	if status.Code(err) == codes.Canceled {
		err = errStuck
	}
	return s.repeat(ctx, f.end(), err)
}

func (s *leaseStream) send(ctx context.Context, stream grpc.BidiStreamingClient[weirv1.LeaseRequest, weirv1.LeaseResponse],
	first []*leaseCall, f *flight) {
	for _, call := range first {
		if stream.Send(call.message) != nil {
			// receive gets the error.
			return
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case call := <-s.queue:
			if call.expired() {
				s.finish(call, nil, call.late())
				continue
			}
			f.add(call)
			if stream.Send(call.message) != nil {
				return
			}
		}
	}
}

// receive delivers answers, and returns why the stream has ended.
func (s *leaseStream) receive(stream grpc.BidiStreamingClient[weirv1.LeaseRequest, weirv1.LeaseResponse], f *flight) error {
	// A stream that the service rejects has no headers.
	headers, err := stream.Header()
	served := headers != nil && err == nil
	for {
		answer, err := stream.Recv()
		if err != nil {
			if !served && rejects(err) {
				s.rejectedUntil = time.Now().Add(leaseStreamPause)
				return errNotServed
			}
			if errors.Is(err, io.EOF) {
				err = status.Error(codes.Unavailable, "the service has ended the stream")
			}
			return err
		}
		call := f.pop()
		if call == nil {
			return status.Error(codes.Internal, "an answer without a request")
		}
		s.finish(call, answer, nil)
	}
}

// repeat finishes the calls that a stream has not answered, except those to retry.
func (s *leaseStream) repeat(ctx context.Context, unanswered []*leaseCall, err error) (again []*leaseCall) {
	for _, call := range unanswered {
		switch {
		case ctx.Err() != nil:
			s.finish(call, nil, errClosed)
		case errors.Is(err, errNotServed):
			s.finish(call, nil, err)
		case call.expired():
			s.finish(call, nil, call.late())
		case call.failed.Load() != nil:
			s.finish(call, nil, err)
		default:
			call.failed.Store(asError(err))
			again = append(again, call)
		}
	}
	return again
}
