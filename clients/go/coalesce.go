package weir

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	minReopen = 10 * time.Millisecond
	// Also the pause after the service rejected the stream.
	maxReopen = time.Second
	// A replica that does not open a stream in this time is given up for the next one.
	openWithin = time.Second
)

// coalescer sends the checks of concurrent callers over one CheckStream, and reopens it whenever it ends.
type coalescer struct {
	service weirv1.RateLimiterClient
	// Nil: calls carry no token.
	token       *token
	maxInFlight int
	// When a check misses its deadline, a stream without an answer for at least this time is replaced.
	stall  time.Duration
	cancel context.CancelFunc
	closed chan struct{}
	// The streams that have not ended yet.
	running sync.WaitGroup
	// Nil without an open stream.
	current atomic.Pointer[pipeline]
}

// pipeline is one stream. Answers arrive in the order of the checks.
type pipeline struct {
	stream grpc.BidiStreamingClient[weirv1.CheckRequest, weirv1.CheckResponse]
	// The token with which the stream was opened.
	token string
	// enqueue holds it for reading, so that no check is queued once the pipeline is retired.
	mu        sync.RWMutex
	isRetired bool
	// Closed when another stream replaces this one, which still answers the checks it has.
	retired chan struct{}
	// One entry for each check in flight. The queues below have the same capacity, so sending to them never blocks.
	places chan struct{}
	queue  chan *entry
	sent   chan *entry
	// Closed once err is set.
	ended chan struct{}
	err   error
	// Whether the stream has ever answered.
	useful bool
	cancel context.CancelFunc
	// progress is the time from the start to the last answer, or to the moment when the first check in flight was queued, whichever is later.
	started  time.Time
	progress atomic.Int64
	stalled  atomic.Bool
}

func (p *pipeline) progresses() { p.progress.Store(int64(time.Since(p.started))) }

type entry struct {
	ctx     context.Context
	request *weirv1.CheckRequest
	answer  chan *weirv1.CheckResponse
}

func newCoalescer(service weirv1.RateLimiterClient, bearer *token, maxInFlight int, stall time.Duration) *coalescer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &coalescer{
		service: service, token: bearer, maxInFlight: maxInFlight, stall: stall, cancel: cancel, closed: make(chan struct{}),
	}
	go c.run(ctx)
	return c
}

func (c *coalescer) close() {
	c.cancel()
	<-c.closed
}

// check sends a check over the stream. It returns sent false without an open stream, or if the stream is full.
func (c *coalescer) check(ctx context.Context, request *weirv1.CheckRequest) (answer *weirv1.CheckResponse, sent bool, err error) {
	p := c.current.Load()
	if p == nil || !encodable(request) {
		return nil, false, nil
	}
	if p.token != c.token.current() {
		// The service may have revoked the old token.
		p.retire()
		return nil, false, nil
	}
	e := &entry{ctx: ctx, request: request, answer: make(chan *weirv1.CheckResponse, 1)}
	if !p.enqueue(e) {
		return nil, false, nil
	}
	select {
	case answer = <-e.answer:
	case <-ctx.Done():
		if time.Since(p.started)-time.Duration(p.progress.Load()) >= c.stall {
			p.stalled.Store(true)
			p.cancel()
		}
		return nil, true, status.FromContextError(ctx.Err()).Err()
	case <-p.ended:
		select {
		case answer = <-e.answer:
		default:
			return nil, true, p.err
		}
	}
	if answer.GetError() != nil {
		return nil, true, entryError(answer.GetError())
	}
	return answer, true, nil
}

// enqueue reports whether the check was queued.
func (p *pipeline) enqueue(e *entry) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.isRetired {
		return false
	}
	select {
	case p.places <- struct{}{}:
	default:
		return false
	}
	if len(p.places) == 1 {
		p.progresses()
	}
	p.queue <- e
	return true
}

func (p *pipeline) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isRetired {
		p.isRetired = true
		close(p.retired)
	}
}

// encodable reports whether a check can be encoded for sure. One that cannot would end the stream for all callers: protobuf strings must be
// UTF-8.
func encodable(request *weirv1.CheckRequest) bool {
	return request.LimitSpec == nil && utf8.ValidString(request.RequestId) && isText(request.Domain, request.Key)
}

func isText(domain string, key Key) bool {
	return utf8.ValidString(domain) && !slices.ContainsFunc(key, func(segment string) bool { return !utf8.ValidString(segment) })
}

func (c *coalescer) run(ctx context.Context) {
	defer close(c.closed)
	defer c.running.Wait()
	pause := minReopen
	for ctx.Err() == nil {
		useful, rejected := c.serve(ctx)
		if useful {
			pause = minReopen
			continue
		}
		if rejected {
			pause = maxReopen
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, maxReopen)
		}
	}
}

// serve opens a stream and works until it ends or is retired. It reports whether the stream was useful, and whether the service rejected
// it.
func (c *coalescer) serve(ctx context.Context) (useful, rejected bool) {
	ctx, cancel := context.WithCancel(ctx)
	p, rejected := c.open(ctx, cancel)
	if p == nil {
		cancel()
		return false, rejected
	}
	go p.send()
	c.current.Store(p)
	c.running.Go(func() {
		defer cancel()
		p.err = p.receive(ctx)
		// First, so that the retry of a check does not find this stream again.
		c.current.CompareAndSwap(p, nil)
		close(p.ended)
	})
	select {
	case <-p.ended:
		return p.useful, false
	case <-p.retired:
		c.current.CompareAndSwap(p, nil)
		return true, false
	}
}

// open returns nil if the service does not accept the stream in time.
func (c *coalescer) open(ctx context.Context, cancel context.CancelFunc) (p *pipeline, rejected bool) {
	late := time.AfterFunc(openWithin, cancel)
	defer late.Stop()
	// Read before the stream is opened, which reads the token again.
	bearer := c.token.current()
	stream, err := c.service.CheckStream(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, false
	}
	// A stream that the service rejects has no headers, so no checks are sent over it.
	if headers, err := stream.Header(); headers == nil || err != nil {
		_, err = stream.Recv()
		return nil, rejects(err)
	}
	if !late.Stop() {
		return nil, false
	}
	return &pipeline{
		stream:  stream,
		token:   bearer,
		retired: make(chan struct{}),
		places:  make(chan struct{}, c.maxInFlight),
		queue:   make(chan *entry, c.maxInFlight),
		sent:    make(chan *entry, c.maxInFlight),
		ended:   make(chan struct{}),
		cancel:  cancel,
		started: time.Now(),
	}, false
}

// rejects reports whether the service has rejected a stream that ended with this error and without headers. The service has then carried
// out nothing of it.
func rejects(err error) bool {
	code := status.Code(err)
	return code != codes.Unavailable && code != codes.Canceled
}

func (p *pipeline) send() {
	for {
		select {
		case <-p.ended:
			return
		case e := <-p.queue:
			p.transmit(e)
		case <-p.retired:
			for len(p.queue) > 0 {
				p.transmit(<-p.queue)
			}
			_ = p.stream.CloseSend()
			return
		}
	}
}

func (p *pipeline) transmit(e *entry) {
	if e.ctx.Err() != nil {
		<-p.places
		return
	}
	p.sent <- e
	// If Send fails, receive gets the error.
	_ = p.stream.Send(e.request)
}

// receive delivers the answers until the stream ends, and returns the error for the checks that are still in flight. The stream's status is
// never the answer to a check: the service ends a stream whose token is not valid any more with UNAUTHENTICATED, while a retry may carry
// another token. So the error is UNAVAILABLE, and the checks are retried.
func (p *pipeline) receive(ctx context.Context) error {
	for {
		answer, err := p.stream.Recv()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return status.Error(codes.Unavailable, "the service has ended the stream")
		case p.stalled.Load():
			return status.Error(codes.Unavailable, "the stream does not answer")
		case ctx.Err() != nil:
			// The client is closed.
			return err
		default:
			return status.Errorf(codes.Unavailable, "the service has ended the stream: %v", err)
		}
		p.useful = true
		p.progresses()
		select {
		case e := <-p.sent:
			e.answer <- answer
			<-p.places
		default:
			return status.Error(codes.Internal, "an answer without a check")
		}
	}
}
