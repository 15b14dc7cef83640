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

// Result is the answer to one check of a batch: a decision, or why there is none. Of a Fallback the reason is Decision.Err.
type Result struct {
	Decision
	Err error
}

// CheckBatch decides up to 1,000 checks in order, each by itself, in one call. The results are in the order of the requests; an invalid
// one fails alone. The longest of their deadlines is the call's; that of a request without is the client's.
func (c *Client) CheckBatch(ctx context.Context, requests ...Request) []Result {
	requests = c.identified(requests)
	message := &weirv1.CheckBatchRequest{}
	malformed := make([]*Error, len(requests))
	for i, request := range requests {
		// One that cannot be encoded would fail the whole call.
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

// AllDecision is the answer to checks that pass together or not at all.
type AllDecision struct {
	// Allowed says that all may pass, and are charged. Else none is.
	Allowed bool
	// RetryAfter is, of a refusal, the time after which the same call passes. 0: no wait helps.
	RetryAfter time.Duration
	// Decisions are what each check's own limits say, in the order of the requests. Of a refused call some may be allowed; they are not
	// charged either.
	Decisions []Decision
}

// CheckAll decides 1 to 32 checks of one domain together: either all are charged or none. It is retried only where none of them charges,
// since such a call cannot have a RequestID. The first request's OnFailure is that of all.
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

// retryOfAll is the longest retry; none where a check can never pass.
func retryOfAll(decisions []Decision) (retry time.Duration) {
	for _, decision := range decisions {
		if decision.Never {
			return 0
		}
		retry = max(retry, decision.RetryAfter)
	}
	return retry
}

// identified are copies of the requests with ids, by which they may be retried. The caller may use his again.
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

// longest is the longest of the requests' deadlines, of which that of one without is the client's.
func (c *Client) longest(requests []Request) (deadline time.Duration) {
	for _, request := range requests {
		deadline = max(deadline, cmp.Or(request.deadline, c.deadline))
	}
	return deadline
}
