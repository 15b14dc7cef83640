package weir

import (
	"context"
	"errors"
	"io"
	"slices"
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
	service     weirv1.RateLimiterClient
	maxInFlight int
	// A stream that has answered nothing for so long when a check misses its deadline is replaced.
	stall  time.Duration
	cancel context.CancelFunc
	closed chan struct{}
	// Nil while there is none.
	current atomic.Pointer[pipeline]
}

// pipeline is one stream. Answers are in the order of the checks.
type pipeline struct {
	stream grpc.BidiStreamingClient[weirv1.CheckRequest, weirv1.CheckResponse]
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

func newCoalescer(service weirv1.RateLimiterClient, maxInFlight int, stall time.Duration) *coalescer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &coalescer{service: service, maxInFlight: maxInFlight, stall: stall, cancel: cancel, closed: make(chan struct{})}
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
	select {
	case p.places <- struct{}{}:
	default:
		return nil, false, nil
	}
	if len(p.places) == 1 {
		p.progresses()
	}
	e := &entry{ctx: ctx, request: request, answer: make(chan *weirv1.CheckResponse, 1)}
	p.queue <- e
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

// encodable reports whether a check cannot end the stream, which belongs to all: protobuf has only text that is UTF-8.
func encodable(request *weirv1.CheckRequest) bool {
	return request.LimitSpec == nil && utf8.ValidString(request.RequestId) && isText(request.Domain, request.Key)
}

func isText(domain string, key Key) bool {
	return utf8.ValidString(domain) && !slices.ContainsFunc(key, func(segment string) bool { return !utf8.ValidString(segment) })
}

func (c *coalescer) run(ctx context.Context) {
	defer close(c.closed)
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

// serve opens a stream and works until it ends. It reports whether the stream was of use, and whether the service rejected it.
func (c *coalescer) serve(ctx context.Context) (useful, rejected bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(openWithin, cancel)
	defer late.Stop()
	stream, err := c.service.CheckStream(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, false
	}
	// A stream that the service rejects has no headers, and gets no checks.
	if headers, err := stream.Header(); headers == nil || err != nil {
		_, err = stream.Recv()
		return false, rejects(err)
	}
	if !late.Stop() {
		return false, false
	}
	p := &pipeline{
		stream: stream,
		places: make(chan struct{}, c.maxInFlight),
		queue:  make(chan *entry, c.maxInFlight),
		sent:   make(chan *entry, c.maxInFlight),
		ended:  make(chan struct{}),
		cancel: cancel,
		began:  time.Now(),
	}
	go p.send()
	c.current.Store(p)
	p.err = p.receive()
	// Before it ends, so that a check which is repeated does not come to it again.
	c.current.Store(nil)
	close(p.ended)
	return p.useful, false
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
			if e.ctx.Err() != nil {
				<-p.places
				continue
			}
			p.sent <- e
			if p.stream.Send(e.request) != nil {
				// receive gets the reason.
				return
			}
		}
	}
}

// receive answers the checks until the stream ends: why.
func (p *pipeline) receive() error {
	for {
		answer, err := p.stream.Recv()
		if err != nil {
			switch {
			case errors.Is(err, io.EOF):
				err = status.Error(codes.Unavailable, "the service has ended the stream")
			case p.stalled.Load():
				err = status.Error(codes.Unavailable, "the stream does not answer")
			}
			return err
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
