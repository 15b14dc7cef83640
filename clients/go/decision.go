package weir

import (
	"time"

	"github.com/OWNER/weir/clients/go/weirv1"
)

// Source says who decided.
type Source int

const (
	// Service: Weir decided.
	Service Source = iota
	// Fallback: OnFailure decided, during an outage.
	Fallback
	// Lease: the client decided, with units that it leases. See WithLease.
	Lease
)

func (s Source) String() string {
	return [...]string{"service", "fallback", "lease"}[s]
}

// Decision is the answer to a check. The summary, up to NextAfter, is taken over all limits on the key's path, each field independently, so
// its numbers may come from different limits. Binding has the numbers of the limit that decided.
type Decision struct {
	// Allowed reports whether the request may pass.
	Allowed bool
	// Limit is the lowest limit on the path; 0 if nothing is limited.
	Limit uint64
	// Remaining is the largest cost that would still pass now. If Source is Lease, it is the units that the client holds.
	Remaining uint64
	// RetryAfter is, if refused, the time after which the same check passes. 0: no wait helps. If Source is Lease and the service has not
	// sent that time, it is the time after which the client asks the service again.
	RetryAfter time.Duration
	// ResetAfter is the time until every limit is full again.
	ResetAfter time.Duration
	// Wait is how much later an allowed request must start (traffic shaping). 0 without MaxWait.
	Wait time.Duration
	// NextAfter is, if nothing is left, the time after which a unit is left. 0 if something is left.
	NextAfter time.Duration
	// Never reports that the check is refused and no wait helps: the cost is above what a limit can ever allow.
	Never bool
	// Degraded reports that the service decided without its shared store.
	Degraded bool
	// Leased reports that a replica or the client decided with units that it leases, without a call of the shared store.
	Leased bool
	// Repeated reports that this is the answer to an earlier request with the same RequestID. This one charged nothing.
	Repeated bool
	// Override is the id of the operator's override that applies, or of the ban that refused the check.
	Override string
	// BanReason is the operator's reason for the ban that refused the check. If the ban has no end, Never is true.
	BanReason string
	// Binding is the limit that decided. Nil without the option Levels, and if nothing is limited.
	Binding *Level
	// Levels are all limits on the path, root first. Nil without the option Levels.
	Levels []Level
	// Source says who decided. For a Fallback, all numbers above are 0; for a Lease, only Remaining and RetryAfter are set.
	Source Source
	// Err is, of a Fallback, the reason why the service did not decide.
	Err error
}

// Level is the decision of one limit.
type Level struct {
	// Name is the limit's name.
	Name string
	// Depth is the number of key segments that the limit covers.
	Depth int
	// Shadow limits (dry run) never refuse.
	Shadow bool
	// Allowed reports whether this limit alone allows the check.
	Allowed bool
	// Limit is the most units that it allows in one burst.
	Limit uint64
	// Remaining is the largest cost that it would still allow now; of a concurrency limit, the free slots, of which a
	// request takes one.
	Remaining uint64
	// RetryAfter is, if refused, the time after which it would allow the check. 0 if allowed, and if no wait helps.
	RetryAfter time.Duration
	// ResetAfter is the time until the limit is full again.
	ResetAfter time.Duration
	// Wait is how much later the request must start.
	Wait time.Duration
	// NextAfter is, if nothing is left, the time after which a unit is left. 0 if something is left, and if no wait helps.
	NextAfter time.Duration
	// Never reports that no wait helps.
	Never bool
}

func newDecision(answer *weirv1.CheckResponse) Decision {
	d := Decision{
		Allowed:    answer.GetAllowed(),
		Limit:      answer.GetLimit(),
		Remaining:  answer.GetRemaining(),
		RetryAfter: answer.GetRetryAfter().AsDuration(),
		ResetAfter: answer.GetResetAfter().AsDuration(),
		Wait:       answer.GetWait().AsDuration(),
		NextAfter:  answer.GetNextAfter().AsDuration(),
		Never:      answer.GetNever(),
		Degraded:   answer.GetDegraded(),
		Leased:     answer.GetLeased(),
		Repeated:   answer.GetRepeatedRequest(),
		Override:   answer.GetOverride(),
		BanReason:  answer.GetBanReason(),
	}
	if levels := answer.GetLevels(); len(levels) > 0 {
		d.Levels = make([]Level, len(levels))
		for i, level := range levels {
			d.Levels[i] = newLevel(level)
		}
		if at := answer.GetBinding(); answer.Binding != nil && int(at) < len(levels) {
			d.Binding = &d.Levels[at]
		}
	}
	return d
}

func newLevel(level *weirv1.LevelResult) Level {
	return Level{
		Name:       level.GetName(),
		Depth:      int(level.GetDepth()),
		Shadow:     level.GetShadow(),
		Allowed:    level.GetAllowed(),
		Limit:      level.GetLimit(),
		Remaining:  level.GetRemaining(),
		RetryAfter: level.GetRetryAfter().AsDuration(),
		ResetAfter: level.GetResetAfter().AsDuration(),
		Wait:       level.GetWait().AsDuration(),
		NextAfter:  level.GetNextAfter().AsDuration(),
		Never:      level.GetNever(),
	}
}

// settle turns an outage into a Fallback if the mode says so.
func settle(decision Decision, err *Error, mode FailureMode) (Decision, error) {
	switch {
	case err == nil:
		return decision, nil
	case mode == ReturnError || !err.Outage():
		return Decision{}, err
	default:
		return Decision{Allowed: mode == Allow, Source: Fallback, Err: err}, nil
	}
}
