package weir

import (
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/OWNER/weir/clients/go/internal/hold"
	"github.com/OWNER/weir/clients/go/weirv1"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/types/known/durationpb"
)

// lease is the lease of one key, with the state machine that decides when to request units.
type lease struct {
	domain string
	key    Key
	hash   uint64
	next   atomic.Pointer[lease]
	// Drawn for each state machine, since each numbers its leases from 1.
	holder [16]byte
	// The counters of leased checks: refused, allowed.
	counted atomic.Pointer[[2][]metric.AddOption]
	// Spent without the lock below.
	balance *hold.Balance

	mu      sync.Mutex
	machine *hold.Lease
	// When a check of at least this cost passes, by the last refusal of the service, which started the present hold-off. 0: unknown.
	retryAt, retryCost int64
	// The lease is not in the table any more, or the client is closed.
	dropped bool
}

func newLease(domain string, key Key, hash uint64) *lease {
	machine := hold.New()
	// The copy outlives the caller's slice.
	l := &lease{domain: domain, key: slices.Clone(key), hash: hash, balance: &machine.Balance, machine: machine}
	// It never fails.
	_, _ = rand.Read(l.holder[:])
	return l
}

func (l *lease) is(domain string, key Key) bool {
	return l.domain == domain && slices.Equal(l.key, key)
}

// timeout returns the time for the answer to a request for which no check waits.
func (l *lease) timeout() time.Duration {
	const most = 100 * time.Millisecond
	if ttl := l.machine.TTL(); ttl > 0 {
		return min(most, time.Duration(ttl/2)*time.Microsecond)
	}
	return most
}

// refused records when the service lets a check of this cost pass.
func (l *lease) refused(cost int64, d *weirv1.CheckResponse, now int64) {
	l.retryAt, l.retryCost = now+d.GetRetryAfter().AsDuration().Microseconds(), cost
}

// heard takes from an answer when a check passes. A renewal that was granted nothing does not change it.
func (l *lease) heard(cost int64, a *weirv1.LeaseResponse, now int64) {
	switch {
	case a.GetDecision() != nil && refusedForNow(a.GetDecision()) && cost > 0:
		l.refused(cost, a.GetDecision(), now)
	case cost > 0 || a.GetGrant() == nil || a.GetGrant().GetUnits() > 0:
		l.retryAt = 0
	}
}

// retryAfter returns the time after which a check passes that the hold-off refuses: at least the rest of the hold-off.
func (l *lease) retryAfter(cost, heldOff, now int64) time.Duration {
	if cost >= l.retryCost {
		heldOff = max(heldOff, l.retryAt-now)
	}
	return time.Duration(heldOff) * time.Microsecond
}

// message returns the LeaseRequest of a request.
func (l *lease) message(r hold.Request, summaryOnly bool) *weirv1.LeaseRequest {
	return &weirv1.LeaseRequest{
		Check: &weirv1.CheckRequest{
			Domain: l.domain, Key: l.key, Cost: &r.Cost, MaxWait: &durationpb.Duration{}, SummaryOnly: summaryOnly,
		},
		Holder:     l.holder[:],
		Lease:      uint64(r.Lease),
		Sequence:   uint64(r.Sequence),
		Spent:      uint64(r.Spent),
		Kept:       uint64(r.Kept),
		Want:       uint64(r.Want),
		Generation: r.Generation,
	}
}

// refusedForNow reports whether a check is refused, but may pass later. The service refuses one that can never pass, each time.
func refusedForNow(d *weirv1.CheckResponse) bool {
	return !d.GetAllowed() && !d.GetNever()
}

// leaseAnswer converts an answer.
func leaseAnswer(a *weirv1.LeaseResponse) *hold.Answer {
	read := &hold.Answer{Lease: int64(a.GetLease()), Sequence: int64(a.GetSequence())}
	if d := a.GetDecision(); d != nil {
		read.Refused = refusedForNow(d)
	}
	if g := a.GetGrant(); g != nil {
		read.Grant = &hold.Grant{
			Units:      units(g.GetUnits()),
			Free:       units(g.GetFree()),
			IsKept:     g.GetIsKept(),
			Recalled:   g.GetIsRecalled(),
			RefusedFor: g.GetRefusedFor().AsDuration().Microseconds(),
		}
	}
	if t := a.GetTerms(); t != nil {
		read.Terms = &hold.Terms{
			Generation: t.GetGeneration(),
			TTL:        t.GetTtl().AsDuration().Microseconds(),
			HoldOff:    t.GetHoldOff().AsDuration().Microseconds(),
			Scarce:     units(t.GetScarce()),
		}
	}
	return read
}

// units bounds a number from the service, so that a sum of a few does not overflow.
func units(n uint64) int64 { return int64(min(n, 1<<60)) }
