package weir

import (
	"sync"
	"time"
)

// BreakerState is the state of a client's circuit breaker.
type BreakerState int

const (
	// BreakerClosed sends all calls.
	BreakerClosed BreakerState = iota
	// BreakerHalfOpen sends one call at a time, a probe of whether the service is available again.
	BreakerHalfOpen
	// BreakerOpen fails all calls immediately, without sending them.
	BreakerOpen
)

func (s BreakerState) String() string {
	return [...]string{"closed", "half-open", "open"}[s]
}

// breaker is a circuit breaker: it opens after maxFailures outages in a row. An outage does not count if its call started before the last
// answer: calls that were sent concurrently to one frozen replica miss their deadlines together, while other replicas answer.
type breaker struct {
	// 0: the circuit breaker never opens.
	maxFailures int
	pause       time.Duration

	mu        sync.Mutex
	failures  int
	answers   uint64
	open      bool
	openUntil time.Time
	probing   bool
}

// outcome is the health of the service by the result of a call.
type outcome int

const (
	answered outcome = iota
	outage
	// The call does not count: its caller gave up, or the service did not serve it.
	unknown
)

// permit is the permit of one call.
type permit struct {
	probe bool
	// The number of answers when the call started.
	answers uint64
}

// enter reports whether a call may be sent. A call that is sent must call leave afterwards, with its permit.
func (b *breaker) enter() (permit, *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return permit{answers: b.answers}, nil
	}
	if pause := time.Until(b.openUntil); pause > 0 {
		return permit{}, circuitOpen(pause)
	}
	if b.probing {
		return permit{}, circuitOpen(0)
	}
	b.probing = true
	return permit{probe: true, answers: b.answers}, nil
}

func (b *breaker) leave(p permit, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// An answer frees the place of the probe, which may belong to another one by the time that the probe ends.
	current := p.answers == b.answers
	if p.probe && current {
		b.probing = false
	}
	switch {
	case o == answered:
		b.answers++
		b.failures, b.open, b.probing = 0, false, false
	case o == unknown, !current:
	case p.probe:
		b.openUntil = time.Now().Add(b.pause)
	case !b.open:
		b.failures++
		if b.failures == b.maxFailures {
			b.open = true
			b.openUntil = time.Now().Add(b.pause)
		}
	}
}

func (b *breaker) state() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return BreakerClosed
	case time.Until(b.openUntil) > 0:
		return BreakerOpen
	default:
		return BreakerHalfOpen
	}
}
