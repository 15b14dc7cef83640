// Package hold is the state machine of a lease: when to ask the service for units of a key, by which request, and what an answer changes.
// It has no I/O, no clock and no goroutine. Times are microseconds of the client's monotonic clock. clients/traces/README.md specifies it,
// and its traces are what the tests replay.
package hold

const (
	// The time within which checks of a key without terms are counted.
	slot = 100_000
	// Checks within that time from which on a lease is worth its renewals.
	hot = 3
	// How long a key is left alone that cannot be leased, or whose terms are not answered.
	askAgainAfter = 1_000_000
	// How long a key is left alone after a lost request for its terms.
	holdOffMax = 10_000
)

// Request is what the client sends.
type Request struct {
	Lease, Sequence, Spent, Kept, Want int64
	// Generation is that of the terms. 0: none are known.
	Generation uint64
	// Cost is that of the check which the request carries. 0: none.
	Cost int64
}

// Answer is the service's answer to a Request.
type Answer struct {
	Lease, Sequence int64
	// Refused says that the check was refused.
	Refused bool
	// Grant is nil where nothing is settled.
	Grant *Grant
	// Terms are nil where the key cannot be leased.
	Terms *Terms
}

// Grant is what a request was granted.
type Grant struct {
	// Units are in addition to those kept, Free those that were left to others.
	Units, Free      int64
	IsKept, Recalled bool
	// RefusedFor is how long a check of at least this cost is refused.
	RefusedFor int64
}

// Terms are how a key is leased.
type Terms struct {
	Generation           uint64
	TTL, HoldOff, Scarce int64
}

// Outcome is how a check is decided that the balance cannot pay for.
type Outcome int

const (
	// Check: by an ordinary check, whose refusal must be told by Lease.Checked.
	Check Outcome = iota
	// Refuse: refused, without asking.
	Refuse
	// Ask: by the request.
	Ask
)

// Lease is the lease of one key. All methods but Balance's need the caller's lock.
type Lease struct {
	// Balance is what may be spent: try Balance.Spend first, without a lock.
	Balance Balance

	state state
	// The number of the newest lease, or of the request for terms.
	number int64
	// Until then the key is not asked for.
	quietUntil int64
	// Cold: the checks within a slot.
	slot, checks int64
	// Asked: when, with which check.
	sent, cost int64
	// Held.
	holder holder
}

type state int

const (
	// Nothing is known of the key, or it cannot be leased.
	cold state = iota
	// The terms are requested.
	requested
	// It can be leased.
	held
)

// New is the lease of a key of which nothing is known.
func New() *Lease {
	l := &Lease{}
	l.Balance.unwatch()
	return l
}

// Short decides a check that the balance cannot pay for: refused for a time, by a request, or by an ordinary check.
func (l *Lease) Short(cost, now int64) (outcome Outcome, retryAfter int64, request Request) {
	if l.state == held {
		return l.holder.short(&l.Balance, cost, now)
	}
	waits := l.state == requested && now < l.sent+askAgainAfter
	if cost <= 0 || waits || !l.isHot(now) {
		return Check, 0, Request{}
	}
	l.number++
	l.state, l.sent, l.cost = requested, now, cost
	return Ask, 0, Request{Lease: l.number, Sequence: 1, Cost: cost}
}

// isHot counts a check of a key without terms, and reports whether the key is worth a lease.
func (l *Lease) isHot(now int64) bool {
	current := now / slot
	if l.state != cold || l.slot != current {
		l.checks = 0
	}
	l.state, l.slot = cold, current
	l.checks++
	return l.checks >= hot && now >= l.quietUntil
}

// Low follows a Spend that was Low: a request to send, with which no check waits.
func (l *Lease) Low(now int64) (Request, bool) {
	if l.state != held {
		return Request{}, false
	}
	return l.holder.low(&l.Balance, now)
}

// Due must be called every 20 ms: a request to send, with which no check waits.
func (l *Lease) Due(now int64) (Request, bool) {
	if !l.Balance.due(now) {
		return Request{}, false
	}
	return l.Low(now)
}

// Checked tells of a refused ordinary check.
func (l *Lease) Checked(cost, sent, now int64) {
	if l.state == held {
		l.holder.refuse(cost, l.holder.heldOffUntil(sent, now))
	}
}

// Answered tells of an answer: maybe a request to send, which gives back what was held under other terms.
func (l *Lease) Answered(answer *Answer, now int64) (request Request, send bool) {
	if answer.Lease != l.number || l.state == cold {
		return Request{}, false
	}
	if l.state == held {
		switch {
		case answer.Terms != nil && answer.Terms.Generation != l.holder.terms.Generation:
			request, send = l.holder.close(&l.Balance, now)
		case answer.Grant != nil:
			l.holder.answered(&l.Balance, answer, now)
			return Request{}, false
		case answer.Terms != nil:
			l.holder.lost(&l.Balance, answer.Sequence)
			return Request{}, false
		default:
			// It is not renewed any more, and burns.
			l.holder.close(&l.Balance, now)
		}
	}
	if answer.Terms == nil {
		l.forget(now + askAgainAfter)
		return request, send
	}
	l.number++
	l.holder = newHolder(l.number, *answer.Terms, now)
	if l.state == requested && answer.Refused {
		l.holder.refuse(l.cost, l.holder.heldOffUntil(l.sent, now))
	}
	l.state = held
	return request, send
}

// Lost tells of a request that was answered by an error, or will not be. Whether it was served is not known, and need not be.
func (l *Lease) Lost(number, sequence, now int64) {
	switch {
	case number != l.number:
	case l.state == held:
		l.holder.lost(&l.Balance, sequence)
	case l.state == requested:
		l.forget(now + holdOffMax)
	}
}

// Close ends the lease: a request to send, which gives back what is held.
func (l *Lease) Close(now int64) (request Request, send bool) {
	if l.state == held {
		request, send = l.holder.close(&l.Balance, now)
	}
	l.forget(0)
	return request, send
}

// Idle reports whether the lease may be forgotten.
func (l *Lease) Idle(now int64) bool {
	switch l.state {
	case held:
		return l.holder.idle(&l.Balance, now)
	case requested:
		return now >= l.sent+askAgainAfter
	default:
		return l.slot != now/slot && now >= l.quietUntil
	}
}

// TTL is how long units are held; 0 while that is not known.
func (l *Lease) TTL() int64 {
	if l.state != held {
		return 0
	}
	return l.holder.terms.TTL
}

func (l *Lease) forget(quietUntil int64) {
	l.state, l.slot, l.checks, l.quietUntil = cold, 0, 0, quietUntil
}
