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
	// BreakerOpen fails all calls at once, without sending them.
	BreakerOpen
)

func (s BreakerState) String() string {
	return [...]string{"closed", "half-open", "open"}[s]
}

// breaker is a circuit breaker: it opens after maxFailures outages in a row.
type breaker struct {
	// 0: the circuit breaker never opens.
	maxFailures int
	pause       time.Duration

	mu        sync.Mutex
	failures  int
	open      bool
	openUntil time.Time
	probing   bool
}

// outcome is what the result of a call says about the service.
type outcome int

const (
	answered outcome = iota
	outage
	// Nothing: the caller gave up, or the service did not serve the call.
	unknown
)

// enter reports whether a call may be sent. A call that is sent must call leave afterwards, with the same probe.
func (b *breaker) enter() (probe bool, err *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return false, nil
	}
	if pause := time.Until(b.openUntil); pause > 0 {
		return false, circuitOpen(pause)
	}
	if b.probing {
		return false, circuitOpen(0)
	}
	b.probing = true
	return true, nil
}

func (b *breaker) leave(probe bool, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe {
		b.probing = false
	}
	switch {
	case o == unknown:
	case o == answered:
		b.failures, b.open = 0, false
	case probe:
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
