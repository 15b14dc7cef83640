package weir

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/OWNER/weir/clients/go/internal/hold"
	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The service's maximum.
const maxCost = hold.MaxCost

// Key is a path, root first: 1 to 32 segments of 1 to 1,024 bytes each. Segments are compared byte for byte and need no escaping.
type Key []string

// FailureMode is the result of a check that the service does not decide, in an outage.
type FailureMode int

const (
	// ReturnError returns the error.
	ReturnError FailureMode = iota
	// Allow lets the request pass (fail open).
	Allow
	// Deny refuses the request (fail closed).
	Deny
)

// Request is one check, for CheckBatch and CheckAll.
type Request struct {
	message   *weirv1.CheckRequest
	deadline  time.Duration
	onFailure *FailureMode
	lease     *bool
}

func NewRequest(key Key, options ...CheckOption) Request {
	// A copy, since a coalesced check may be sent after its caller has given up.
	r := Request{message: &weirv1.CheckRequest{Key: slices.Clone(key), MaxWait: &durationpb.Duration{}, SummaryOnly: true}}
	for _, option := range options {
		option(&r)
	}
	return r
}

// CheckOption configures a check.
type CheckOption func(*Request)

// Domain sets the domain whose policy decides. Default: the default domain.
func Domain(domain string) CheckOption {
	return func(r *Request) { r.message.Domain = domain }
}

// Cost sets the units to charge, -2^32 to 2^32. Default 1. 0 is a preview: read-only, charges nothing. A negative cost is a refund.
func Cost(units int64) CheckOption {
	return func(r *Request) { r.message.Cost = &units }
}

// Limits replaces the limits of the domain's policy for this check: see NewLimit. Without limits the check is not limited.
func Limits(limits ...*weirv1.Limit) CheckOption {
	return func(r *Request) { r.limitSpec().Limits = limits }
}

// Charge sets the charging rule of Limits when one of them refuses.
func Charge(charge weirv1.Charge) CheckOption {
	return func(r *Request) { r.limitSpec().Charge = charge }
}

// MaxWait accepts a Decision.Wait of up to this time from limits that shape traffic, at most 1 day. Default 0: such a limit refuses a check
// that would have to wait. Guard waits before the request passes.
func MaxWait(wait time.Duration) CheckOption {
	return func(r *Request) { r.message.MaxWait = duration(wait) }
}

// Factor divides the counts of all limits that the check meets: 0.5 allows twice as much, 2 half as much, 0 lifts the limits.
func Factor(factor float64) CheckOption {
	return func(r *Request) { r.message.Factor = &factor }
}

// DryRun decides as without it, but charges nothing.
func DryRun() CheckOption {
	return func(r *Request) { r.message.DryRun = true }
}

// RequestID sets the idempotency key: 1 to 64 random bytes, such as a UUID. A check with the same id is charged once, however often it is
// sent. By default the client draws an id itself if it may retry the call.
func RequestID(id string) CheckOption {
	return func(r *Request) { r.message.RequestId = id }
}

// Levels requests Decision.Levels and Decision.Binding.
func Levels() CheckOption {
	return func(r *Request) { r.message.SummaryOnly = false }
}

// Deadline overrides the client's deadline for this call. 0 is the client's; with a negative one the call fails with ErrDeadlineExceeded.
func Deadline(deadline time.Duration) CheckOption {
	return func(r *Request) { r.deadline = deadline }
}

// OnFailure overrides the client's failure mode for this check.
func OnFailure(mode FailureMode) CheckOption {
	return func(r *Request) { r.onFailure = &mode }
}

// UseLease overrides WithLease for this check. CheckBatch, CheckAll, Reserve and Slot ignore it, and so do checks with a Cost below 1,
// Limits, MaxWait, Factor, DryRun or RequestID.
func UseLease(use bool) CheckOption {
	return func(r *Request) { r.lease = &use }
}

// duration truncates to whole microseconds: the service rejects finer durations.
func duration(d time.Duration) *durationpb.Duration {
	return durationpb.New(d.Truncate(time.Microsecond))
}

func (r *Request) limitSpec() *weirv1.LimitSpec {
	if r.message.LimitSpec == nil {
		r.message.LimitSpec = &weirv1.LimitSpec{}
	}
	return r.message.LimitSpec
}

// cost returns the cost, or the service's default.
func (r *Request) cost() int64 {
	if r.message.Cost == nil {
		return 1
	}
	return *r.message.Cost
}

// leasable reports whether a lease may decide the check.
func (r *Request) leasable(lease bool) bool {
	if r.lease != nil {
		lease = *r.lease
	}
	m := r.message
	return lease && m.LimitSpec == nil && r.cost() > 0 && r.cost() <= maxCost && m.MaxWait.AsDuration() == 0 && m.Factor == nil &&
		!m.DryRun && m.RequestId == ""
}

// free reports whether the check charges nothing, so that retrying it needs no id.
func (r *Request) free() bool {
	return r.message.DryRun || r.cost() == 0
}

// malformed returns the error of a check that cannot be encoded: protobuf strings must be UTF-8.
func (r *Request) malformed() *Error {
	if encodable(r.message) {
		return nil
	}
	if _, err := proto.Marshal(r.message); err != nil {
		return asError(status.Error(codes.InvalidArgument, err.Error()))
	}
	return nil
}

// identify gives a check that charges or refunds an idempotency key of at least 128 random bits, so that it does so once, however often it
// is sent.
func (r *Request) identify() {
	if !r.free() && r.message.RequestId == "" {
		r.message.RequestId = rand.Text()
	}
}
