package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// An answer is a response, or the text of an error, in the form in which two are compared.
type answer struct {
	response *rls.RateLimitResponse
	err      string
}

// String prints an answer without the time until a window ends, in JSON with fixed spacing.
func (a answer) String() string {
	if a.response == nil {
		return "error: " + a.err
	}
	response := proto.Clone(a.response).(*rls.RateLimitResponse)
	for _, s := range response.Statuses {
		s.DurationUntilReset = nil
	}
	for _, h := range response.ResponseHeadersToAdd {
		if h.Key == resetHeader {
			h.Value = "SECONDS"
		}
	}
	text, err := protojson.Marshal(response)
	if err != nil {
		return err.Error()
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err.Error()
	}
	return compact.String()
}

// resetHeader is the header that has seconds.
const resetHeader = "RateLimit-Reset"

const callTimeout = 20 * time.Second

func (s *service) call(request *rls.RateLimitRequest) answer {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	response, err := s.client.ShouldRateLimit(ctx, request)
	if err != nil {
		at := status.Convert(err)
		return answer{err: fmt.Sprintf("%s: %s", at.Code(), at.Message())}
	}
	return answer{response: response}
}

// post asks by JSON, where the error is the status code.
func (s *service) post(request *rls.RateLimitRequest) answer {
	body, err := protojson.Marshal(request)
	if err != nil {
		return answer{err: err.Error()}
	}
	client := http.Client{Timeout: callTimeout}
	reply, err := client.Post(s.http+"/json", "application/json", bytes.NewReader(body))
	if err != nil {
		return answer{err: err.Error()}
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return answer{err: err.Error()}
	}
	response := &rls.RateLimitResponse{}
	over := map[int]rls.RateLimitResponse_Code{http.StatusOK: rls.RateLimitResponse_OK, http.StatusTooManyRequests: rls.RateLimitResponse_OVER_LIMIT}
	expected, known := over[reply.StatusCode]
	if !known {
		return answer{err: fmt.Sprint(reply.StatusCode)}
	}
	if err := protojson.Unmarshal(text, response); err != nil {
		return answer{err: fmt.Sprintf("%d: %v", reply.StatusCode, err)}
	}
	if response.OverallCode != expected {
		return answer{err: fmt.Sprintf("%d with %s", reply.StatusCode, response.OverallCode)}
	}
	return answer{response: response}
}

// agree tells whether two answers are the same. Seconds until a window ends may pass between the two calls. Errors differ in their texts.
func agree(peer, weir answer) bool {
	if peer.response == nil || weir.response == nil {
		return peer.response == nil && weir.response == nil
	}
	a, b := proto.Clone(peer.response).(*rls.RateLimitResponse), proto.Clone(weir.response).(*rls.RateLimitResponse)
	if len(a.Statuses) == len(b.Statuses) && len(a.ResponseHeadersToAdd) == len(b.ResponseHeadersToAdd) {
		for i, s := range a.Statuses {
			t := b.Statuses[i]
			if s.DurationUntilReset != nil && t.DurationUntilReset != nil && near(s.DurationUntilReset.Seconds, t.DurationUntilReset.Seconds) {
				t.DurationUntilReset = s.DurationUntilReset
			}
		}
		for i, h := range a.ResponseHeadersToAdd {
			h.Value = sameSeconds(h, b.ResponseHeadersToAdd[i])
		}
	}
	return proto.Equal(a, b)
}

func near(a, b int64) bool { return a-b >= -2 && a-b <= 2 }

func sameSeconds(a, b *core.HeaderValue) string {
	x, errX := strconv.ParseInt(a.Value, 10, 64)
	y, errY := strconv.ParseInt(b.Value, 10, 64)
	if a.Key == b.Key && a.Key == resetHeader && errX == nil && errY == nil && near(x, y) {
		return b.Value
	}
	return a.Value
}
