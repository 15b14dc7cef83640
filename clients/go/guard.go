package weir

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// The service's maxima.
const (
	maxSegments     = 32
	maxSegmentBytes = 1024
)

// Verdict is what a server does with a request.
type Verdict struct {
	// Pass reports whether the request passes.
	Pass bool
	// Status is the HTTP status of the answer if the request does not pass: 429, or 503 if the service did not decide, or the request ended
	// while it waited.
	Status int
	// Header has the headers to add to the answer: RateLimit and RateLimit-Policy, also if the request passes; if it does not, Content-Type
	// and Retry-After too.
	Header http.Header
	// Body is a problem document (RFC 9457) if the request does not pass.
	Body []byte
	// Decision is the decision; a Fallback with the reason if the service did not decide.
	Decision Decision
}

// Guard checks a request of a server. It never fails: if the service does not decide, the request passes (fail open), or is refused with
// 503 with OnFailure(Deny) (fail closed). The reason is logged, at most once in ten seconds for each reason: outages as warnings, a wrong
// configuration as an error.
//
// Users cannot bypass the limit by making a check invalid: empty and overlong segments of the key are repaired, those after the 32nd are
// dropped, and an empty key becomes "-". A user who disconnects does not cancel the check.
//
// With MaxWait, Guard returns after Decision.Wait. If ctx ends before, the request does not pass.
func (c *Client) Guard(ctx context.Context, key Key, options ...CheckOption) Verdict {
	request := NewRequest(nil, options...)
	mode := c.mode(&request)
	if mode == ReturnError {
		mode = Allow
	}
	all := append([]CheckOption{Levels()}, options...)
	// ReturnError, so that the metrics count an outcome "error": alerts rest on it.
	decision, err := c.Check(context.WithoutCancel(ctx), repaired(key), append(all, OnFailure(ReturnError))...)
	if err != nil {
		decision = Decision{Allowed: mode == Allow, Source: Fallback, Err: err}
	}
	verdict := Verdict{Pass: decision.Allowed, Header: http.Header{}, Decision: decision}
	setHeaders(verdict.Header, decision)
	switch {
	case decision.Source == Fallback:
		c.log.tell(decision.Err, mode)
		if !verdict.Pass {
			verdict.refuse(http.StatusServiceUnavailable, ceilSeconds(retryAfter(decision.Err)), "temporary-reduced-capacity")
		}
	case verdict.Pass:
		// If the wait is cut short, a handler that ignores ctx must not run early.
		if verdict.Pass = waited(ctx, decision.Wait); !verdict.Pass {
			verdict.refuse(http.StatusServiceUnavailable, 0, "temporary-reduced-capacity")
		}
	case decision.RetryAfter > 0:
		verdict.refuse(http.StatusTooManyRequests, ceilSeconds(decision.RetryAfter), "quota-exceeded")
	default:
		verdict.refuse(http.StatusTooManyRequests, 0, "quota-exceeded")
	}
	return verdict
}

// waited waits, and reports whether ctx lasted as long.
func waited(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func retryAfter(err error) time.Duration {
	var e *Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.RetryAfter
}

func (v *Verdict) refuse(status int, retry seconds, problem string) {
	v.Status = status
	v.Header.Set("Content-Type", "application/problem+json")
	if retry > 0 {
		v.Header.Set("Retry-After", retry.String())
	}
	// It cannot fail: all values can be encoded.
	v.Body, _ = json.Marshal(map[string]any{
		"type":   "https://iana.org/assignments/http-problem-types#" + problem,
		"title":  http.StatusText(status),
		"status": status,
	})
}

// repaired returns the key without anything that the service would reject: bytes that are not UTF-8, empty segments, segments that are too
// long, too many segments.
func repaired(key Key) Key {
	if len(key) == 0 {
		return Key{"-"}
	}
	key = key[:min(len(key), maxSegments)]
	whole := make(Key, len(key))
	for i, segment := range key {
		segment = strings.ToValidUTF8(segment, "?")
		if len(segment) > maxSegmentBytes {
			end := maxSegmentBytes
			for !utf8.RuneStart(segment[end]) {
				end--
			}
			segment = segment[:end]
		}
		whole[i] = cmp.Or(segment, "-")
	}
	return whole
}
