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
	// Also after which a service that rejects the stream is asked for it again.
	maxReopen = time.Second
	// A replica that begins no stream in this time is left for the next.
	openWithin = time.Second
)

// coalescer sends the checks of concurrent callers over one CheckStream, which it opens again whenever it ends.
type coalescer struct {
	service weirv1.RateLimiterClient
	// Nil: calls carry none.
	token       *token
	maxInFlight int
	// A stream that has answered nothing for so long when a check misses its deadline is replaced.
	stall  time.Duration
	cancel context.CancelFunc
	closed chan struct{}
	// The streams that are not ended yet.
	running sync.WaitGroup
	// Nil while there is none.
	current atomic.Pointer[pipeline]
}

// pipeline is one stream. Answers are in the order of the checks.
type pipeline struct {
	stream grpc.BidiStreamingClient[weirv1.CheckRequest, weirv1.CheckResponse]
	// With which it was opened.
	token string
	// enqueue holds it for reading, so that no check is queued once the pipeline is retired.
	mu        sync.RWMutex
	isRetired bool
	// Closed when another stream takes the place of this one, which answers what it has.
	retired chan struct{}
	// A place for each check that has no answer yet. The channels below have room for all of these, so that sending never blocks.
	places chan struct{}
	queue  chan *entry
	sent   chan *entry
	// Closed once err is set.
	ended chan struct{}
	err   error
	// Whether it has ever answered.
	useful bool
	cancel context.CancelFunc
	// When it last answered, or began to wait for the first of these answers, since it began.
	began    time.Time
	progress atomic.Int64
	stalled  atomic.Bool
}

func (p *pipeline) progresses() { p.progress.Store(int64(time.Since(p.began))) }

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

// check sends a check over the stream, unless there is none or it has no room.
func (c *coalescer) check(ctx context.Context, request *weirv1.CheckRequest) (answer *weirv1.CheckResponse, sent bool, err error) {
	p := c.current.Load()
	if p == nil || !encodable(request) {
		return nil, false, nil
	}
	if p.token != c.token.current() {
		// The service may not know the old one any more.
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
		if time.Since(p.began)-time.Duration(p.progress.Load()) >= c.stall {
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

// enqueue reports whether there was a place for a check.
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

// encodable reports whether a check cannot end the stream, which belongs to all: protobuf has only text that is UTF-8.
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

// serve opens a stream and works until it ends or is retired. It reports whether the stream was of use, and whether the service rejected
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
		// Before it ends, so that a check which is repeated does not come to it again.
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

// open returns nil where the service does not accept the stream.
func (c *coalescer) open(ctx context.Context, cancel context.CancelFunc) (p *pipeline, rejected bool) {
	late := time.AfterFunc(openWithin, cancel)
	defer late.Stop()
	// Before the stream is opened, which reads it again.
	bearer := c.token.current()
	stream, err := c.service.CheckStream(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, false
	}
	// A stream that the service rejects has no headers, and gets no checks.
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
		began:   time.Now(),
	}, false
}

// rejects reports whether the service has rejected a stream that ended so without headers: then it has served nothing of it.
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
	// Where that fails, receive gets the reason.
	_ = p.stream.Send(e.request)
}

// receive answers the checks until the stream ends: why. Whatever the status, that is not the answer to a check: the service ends a
// stream whose token is no more valid with UNAUTHENTICATED, while a call has another token. So checks are repeated as after UNAVAILABLE.
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
