package weir

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Result is the answer to one check of a batch: a decision or an error. If the decision is a Fallback, Decision.Err is the reason.
type Result struct {
	Decision
	Err error
}

// CheckBatch decides up to 1,000 checks in order, independently, in one call. The results are in the order of the requests; an invalid
// check fails alone. The call's deadline is the longest of the checks' deadlines; a check without one counts with the client's.
func (c *Client) CheckBatch(ctx context.Context, requests ...Request) []Result {
	requests = c.identified(requests)
	message := &weirv1.CheckBatchRequest{}
	malformed := make([]*Error, len(requests))
	for i, request := range requests {
		// A check that cannot be encoded would fail the whole call.
		if malformed[i] = request.malformed(); malformed[i] == nil {
			message.Checks = append(message.Checks, request.message)
		}
	}
	var answer *weirv1.CheckBatchResponse
	failure := c.call(ctx, c.longest(requests), true, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = c.service.CheckBatch(ctx, message, options...)
		return err
	})
	results, answers := make([]Result, len(requests)), answer.GetResults()
	for i, request := range requests {
		failure := cmp.Or(malformed[i], failure)
		var entry *weirv1.CheckResponse
		if failure == nil && len(answers) > 0 {
			entry, answers = answers[0], answers[1:]
			if entry.GetError() != nil {
				failure = entryError(entry.GetError())
			}
		}
		result := &results[i]
		result.Decision, result.Err = settle(newDecision(entry), failure, c.mode(&request))
		c.telemetry.count(ctx, request.message.GetDomain(), result.Decision, result.Err)
	}
	return results
}

// AllDecision is the answer to CheckAll: the checks pass together or not at all.
type AllDecision struct {
	// Allowed reports whether all checks pass and are charged. If not, none is charged.
	Allowed bool
	// RetryAfter is, if the call is refused, the time after which the same call passes. 0: no wait helps.
	RetryAfter time.Duration
	// Decisions has each check's decision by its own limits, in the order of the requests. In a refused call some may be allowed; they are not
	// charged either.
	Decisions []Decision
}

// CheckAll decides 1 to 32 checks of one domain together: either all are charged or none. The call cannot have a RequestID, so it is
// retried only if none of the checks charges anything. The first request's OnFailure applies to the whole call.
func (c *Client) CheckAll(ctx context.Context, requests ...Request) (AllDecision, error) {
	message := &weirv1.CheckAllRequest{}
	repeatable := true
	for _, request := range requests {
		message.Checks = append(message.Checks, request.message)
		repeatable = repeatable && request.free()
	}
	var answer *weirv1.CheckAllResponse
	failure := c.call(ctx, c.longest(requests), repeatable, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = c.service.CheckAll(ctx, message, options...)
		return err
	})
	mode := c.onFailure
	if len(requests) > 0 {
		mode = c.mode(&requests[0])
	}
	fallback, err := settle(Decision{}, failure, mode)
	all := AllDecision{Allowed: answer.GetAllowed() || fallback.Allowed, Decisions: make([]Decision, len(requests))}
	for i, request := range requests {
		all.Decisions[i] = fallback
		if failure == nil && i < len(answer.GetResults()) {
			all.Decisions[i] = newDecision(answer.GetResults()[i])
		}
		c.telemetry.count(ctx, request.message.GetDomain(), all.Decisions[i], err)
	}
	if err != nil {
		return AllDecision{}, err
	}
	all.RetryAfter = retryOfAll(all.Decisions)
	return all, nil
}

// retryOfAll returns the longest RetryAfter; 0 if a check can never pass.
func retryOfAll(decisions []Decision) (retry time.Duration) {
	for _, decision := range decisions {
		if decision.Never {
			return 0
		}
		retry = max(retry, decision.RetryAfter)
	}
	return retry
}

// identified returns copies of the requests with request ids, so that the call may be retried. The caller's requests stay as they are, for
// reuse.
func (c *Client) identified(requests []Request) []Request {
	if c.retries == 0 {
		return requests
	}
	identified := slices.Clone(requests)
	for i := range identified {
		identified[i].message = proto.CloneOf(identified[i].message)
		identified[i].identify()
	}
	return identified
}

// longest returns the longest of the requests' deadlines; a request without one counts with the client's.
func (c *Client) longest(requests []Request) (deadline time.Duration) {
	for i, request := range requests {
		// All of them may be negative.
		if own := cmp.Or(request.deadline, c.deadline); i == 0 || own > deadline {
			deadline = own
		}
	}
	return deadline
}
