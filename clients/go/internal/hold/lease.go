// Package hold is the state machine of a lease: it decides when to request units of a key from the service, and applies the answers. It has
// no I/O, no clock and no goroutine. Times are microseconds of the client's monotonic clock. clients/traces/README.md is its specification;
// the tests replay the traces there.
package hold

const (
	// The time slot in which checks of a key without terms are counted.
	slot = 100_000
	// The checks within a slot that make a key hot: worth a lease.
	hot = 3
	// The pause before the terms are requested again, of a key that cannot be leased, or whose request was not answered.
	askAgainAfter = 1_000_000
	// The pause after a lost request for the terms.
	holdOffMax = 10_000
)

// Request is a LeaseRequest.
type Request struct {
	Lease, Sequence, Spent, Kept, Want int64
	// Generation is that of the terms. 0: unknown.
	Generation uint64
	// Cost is that of the check which the request carries. 0: none.
	Cost int64
}

// Answer is a LeaseResponse.
type Answer struct {
	Lease, Sequence int64
	// Refused reports whether the check was refused.
	Refused bool
	// Grant is nil if nothing was settled or granted.
	Grant *Grant
	// Terms are nil if the key cannot be leased.
	Terms *Terms
}

// Grant is a LeaseGrant.
type Grant struct {
	// Units are in addition to those kept; Free units are left after the grant.
	Units, Free      int64
	IsKept, Recalled bool
	// RefusedFor is the time for which a check of at least this cost is refused.
	RefusedFor int64
}

// Terms are the LeaseTerms of a key.
type Terms struct {
	Generation           uint64
	TTL, HoldOff, Scarce int64
}

// Outcome says how to decide a check that the balance cannot pay.
type Outcome int

const (
	// Check: by an ordinary check. If that is refused, call Lease.Checked.
	Check Outcome = iota
	// Refuse: refuse it locally.
	Refuse
	// Ask: send the request; its answer decides.
	Ask
)

// Lease is the lease of one key. The caller must hold a lock for all methods but Balance's.
type Lease struct {
	// Balance has the units that may be spent. Try Balance.Spend first, without a lock.
	Balance Balance

	state state
	// The number of the newest lease, or of the request for terms.
	number int64
	// No lease is requested until then.
	quietUntil int64
	// If cold: the current time slot, and its checks so far.
	slot, checks int64
	// If requested: when the request was sent, and the cost of its check.
	sent, cost int64
	// If held.
	holder holder
}

type state int

const (
	// The terms are unknown, or the key cannot be leased.
	cold state = iota
	// The terms are requested.
	requested
	// The key can be leased.
	held
)

// New returns the lease of a key whose terms are unknown.
func New() *Lease {
	l := &Lease{}
	l.Balance.unwatch()
	return l
}

// Short decides a check that the balance cannot pay: it is refused for a time, or decided by a request or an ordinary check.
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

// Low follows a Spend that returned Low. It returns a request to send, for which no check waits.
func (l *Lease) Low(now int64) (Request, bool) {
	if l.state != held {
		return Request{}, false
	}
	return l.holder.low(&l.Balance, now)
}

// Due must be called every 20 ms. It returns a request to send, for which no check waits.
func (l *Lease) Due(now int64) (Request, bool) {
	if !l.Balance.due(now) {
		return Request{}, false
	}
	return l.Low(now)
}

// Checked must be called after a refused ordinary check.
func (l *Lease) Checked(cost, sent, now int64) {
	if l.state == held {
		l.holder.refuse(cost, l.holder.heldOffUntil(sent, now))
	}
}

// Answered applies an answer. It may return a request to send, which returns the units of a lease that is not renewed any more.
func (l *Lease) Answered(answer *Answer, now int64) (request Request, send bool) {
	if answer.Lease != l.number || l.state == cold {
		return Request{}, false
	}
	if l.state == held {
		ends := answer.Grant == nil
		if answer.Terms != nil {
			ends = answer.Terms.Generation != l.holder.terms.Generation
		}
		switch {
		case ends:
			request, send = l.holder.close(&l.Balance, now)
		case answer.Grant != nil:
			l.holder.answered(&l.Balance, answer, now)
			return Request{}, false
		default:
			l.holder.lost(&l.Balance, answer.Sequence)
			return Request{}, false
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

// Lost must be called for a request that failed or that will not be answered. It does not matter whether the service has carried it out.
func (l *Lease) Lost(number, sequence, now int64) {
	switch {
	case number != l.number:
	case l.state == held:
		l.holder.lost(&l.Balance, sequence)
	case l.state == requested:
		l.forget(now + holdOffMax)
	}
}

// Close ends the lease. It may return a request to send, which returns the units held.
func (l *Lease) Close(now int64) (request Request, send bool) {
	if l.state == held {
		request, send = l.holder.close(&l.Balance, now)
	}
	l.forget(0)
	return request, send
}

// Idle reports whether the lease may be dropped.
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

// TTL is the time for which units are held; 0 while unknown.
func (l *Lease) TTL() int64 {
	if l.state != held {
		return 0
	}
	return l.holder.terms.TTL
}

func (l *Lease) forget(quietUntil int64) {
	l.state, l.slot, l.checks, l.quietUntil = cold, 0, 0, quietUntil
}
