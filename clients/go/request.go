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

// The service takes no more.
const maxCost = hold.MaxCost

// Key is a path, root first: 1 to 32 segments of 1 to 1,024 bytes each. Segments are compared byte for byte and need no escaping.
type Key []string

// FailureMode is what happens without a decision, in an outage.
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

// NewRequest is a check of a key.
func NewRequest(key Key, options ...CheckOption) Request {
	// A copy, since a coalesced check may be sent when its caller has given up.
	r := Request{message: &weirv1.CheckRequest{Key: slices.Clone(key), MaxWait: &durationpb.Duration{}, SummaryOnly: true}}
	for _, option := range options {
		option(&r)
	}
	return r
}

// CheckOption changes a check.
type CheckOption func(*Request)

// Domain is the domain whose policy decides. Default: the default domain.
func Domain(domain string) CheckOption {
	return func(r *Request) { r.message.Domain = domain }
}

// Cost is the units to charge. Default 1. 0 is a preview, which charges nothing; a negative cost is a refund.
func Cost(units int64) CheckOption {
	return func(r *Request) { r.message.Cost = &units }
}

// Limits are the only limits of this check, instead of those of the domain's policy: see NewLimit. None: the check is not limited.
func Limits(limits ...*weirv1.Limit) CheckOption {
	return func(r *Request) { r.limitSpec().Limits = limits }
}

// Charge is what a refused check charges of its Limits.
func Charge(charge weirv1.Charge) CheckOption {
	return func(r *Request) { r.limitSpec().Charge = charge }
}

// MaxWait accepts a Decision.Wait of limits that shape traffic. Default 0: such a limit refuses what would have to wait.
func MaxWait(wait time.Duration) CheckOption {
	return func(r *Request) { r.message.MaxWait = durationpb.New(wait) }
}

// Factor divides the counts of all limits that the check meets: 0.5 allows twice as much, 0 lifts the limits.
func Factor(factor float64) CheckOption {
	return func(r *Request) { r.message.Factor = &factor }
}

// DryRun decides as always, but charges nothing.
func DryRun() CheckOption {
	return func(r *Request) { r.message.DryRun = true }
}

// RequestID is the caller's own id of the request, drawn at random: it is charged once, however often it is asked. By default the
// client draws one itself where it may retry the call.
func RequestID(id string) CheckOption {
	return func(r *Request) { r.message.RequestId = id }
}

// Levels asks for Decision.Levels and Decision.Binding.
func Levels() CheckOption {
	return func(r *Request) { r.message.SummaryOnly = false }
}

// Deadline replaces that of the client for this call.
func Deadline(deadline time.Duration) CheckOption {
	return func(r *Request) { r.deadline = deadline }
}

// OnFailure replaces that of the client for this check.
func OnFailure(mode FailureMode) CheckOption {
	return func(r *Request) { r.onFailure = &mode }
}

// UseLease replaces WithLease for this check. CheckBatch, CheckAll and reservations ignore it, and so do checks of a Cost below 1, and
// those with Limits, MaxWait, Factor, DryRun or RequestID.
func UseLease(use bool) CheckOption {
	return func(r *Request) { r.lease = &use }
}

func (r *Request) limitSpec() *weirv1.LimitSpec {
	if r.message.LimitSpec == nil {
		r.message.LimitSpec = &weirv1.LimitSpec{}
	}
	return r.message.LimitSpec
}

// cost is what the service takes it to be.
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

// free reports whether the check changes nothing, so that it may be repeated at will.
func (r *Request) free() bool {
	return r.message.DryRun || r.cost() == 0
}

// malformed is the error of a check that cannot be encoded: protobuf has only text that is UTF-8.
func (r *Request) malformed() *Error {
	if encodable(r.message) {
		return nil
	}
	if _, err := proto.Marshal(r.message); err != nil {
		return asError(status.Error(codes.InvalidArgument, err.Error()))
	}
	return nil
}

// identify gives a check that charges or gives back an id of 128 random bits, by which it does so once however often it is sent.
func (r *Request) identify() {
	if !r.free() && r.message.RequestId == "" {
		r.message.RequestId = rand.Text()
	}
}
