package weir

import (
	"time"

	"github.com/OWNER/weir/clients/go/weirv1"
)

// Source is who decided.
type Source int

const (
	// Service is Weir.
	Service Source = iota
	// Fallback is OnFailure, in an outage.
	Fallback
	// Lease is the client itself, by units that it holds: see WithLease.
	Lease
)

func (s Source) String() string {
	return [...]string{"service", "fallback", "lease"}[s]
}

// Decision is the answer to a check. The summary, up to NextAfter, is taken over all limits on the key's path, each field by itself;
// the numbers of the limit that decided are in Binding.
type Decision struct {
	// Allowed says whether the request may pass.
	Allowed bool
	// Limit is the lowest limit on the path; 0 where nothing is limited.
	Limit uint64
	// Remaining is the largest cost that would still pass. Of a Lease it is what the client still holds.
	Remaining uint64
	// RetryAfter is, of a refusal, the time after which the same check passes. 0: no wait helps. Of a Lease whose service has not told that
	// it is the time after which the service is asked again.
	RetryAfter time.Duration
	// ResetAfter is the time until every limit is full again.
	ResetAfter time.Duration
	// Wait is how much later an allowed request must start. 0 without MaxWait.
	Wait time.Duration
	// NextAfter is, with nothing left, the time after which a unit is left. 0 where something is left.
	NextAfter time.Duration
	// Never says of a refusal that no wait helps: the cost is above what a limit can ever allow.
	Never bool
	// Degraded says that the service decided without its shared store.
	Degraded bool
	// Leased says that a replica, or the client, decided by units that it holds, without asking the shared store.
	Leased bool
	// Repeated says that this is the answer to an earlier request of the same RequestID.
	Repeated bool
	// Override is the id of the operator's override that acted, or of the ban that refused the check.
	Override string
	// BanReason is, of a refusal by an operator's ban, why, in the operator's words. Never says that the ban has no end.
	BanReason string
	// Binding is the limit that decided. Nil without the option Levels, and where nothing is limited.
	Binding *Level
	// Levels are all limits on the path, root first. Nil without the option Levels.
	Levels []Level
	// Source is who decided. Of a Fallback all numbers above are 0; a Lease has Remaining and RetryAfter alone.
	Source Source
	// Err is why the service did not decide, of a Fallback.
	Err error
}

// Level is the decision of one limit.
type Level struct {
	// Name is the limit's.
	Name string
	// Depth is the number of the key's segments that it covers.
	Depth int
	// Shadow limits never refuse.
	Shadow bool
	// Allowed and the other fields are those of Decision, of this limit alone.
	Allowed bool
	// Limit is the most units at once.
	Limit uint64
	// Remaining is the largest cost that it would still allow.
	Remaining uint64
	// RetryAfter is 0 where it allows the check, and where no wait helps.
	RetryAfter time.Duration
	// ResetAfter is the time until it is full again.
	ResetAfter time.Duration
	// Wait is how much later the request must start.
	Wait time.Duration
	// NextAfter is 0 where something is left, and where no wait helps.
	NextAfter time.Duration
	// Never says that no wait helps.
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

// settle makes an outage a decision, where the mode says so.
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
