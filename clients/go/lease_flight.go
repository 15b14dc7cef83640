package weir

import (
	"sync"
	"time"
)

// flight holds the calls in flight on a stream, oldest first. It ends the stream when one is not answered in time.
type flight struct {
	mu    sync.Mutex
	calls []*leaseCall
	timer *time.Timer
}

func newFlight(expire func(), first []*leaseCall) *flight {
	f := &flight{calls: append([]*leaseCall(nil), first...)}
	f.timer = time.AfterFunc(f.left(), expire)
	return f
}

// left returns the time until the earliest deadline.
func (f *flight) left() time.Duration {
	soonest := f.calls[0].deadline
	for _, call := range f.calls[1:] {
		if call.deadline.Before(soonest) {
			soonest = call.deadline
		}
	}
	return time.Until(soonest)
}

func (f *flight) add(call *leaseCall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	f.timer.Reset(f.left())
}

// pop removes and returns the oldest call; nil if there is none.
func (f *flight) pop() *leaseCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) == 0 {
		return nil
	}
	call := f.calls[0]
	f.calls = f.calls[1:]
	if len(f.calls) == 0 {
		f.timer.Stop()
	} else {
		f.timer.Reset(f.left())
	}
	return call
}

// end stops the timer and returns the unanswered calls.
func (f *flight) end() []*leaseCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer.Stop()
	return f.calls
}
