package weir_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"github.com/OWNER/weir/clients/go/weirv1"
)

func TestCheckBatch(t *testing.T) {
	_, client := started(t)
	requests := []weir.Request{
		weir.NewRequest(trade, weir.Cost(2)),
		weir.NewRequest(weir.Key{}),
		weir.NewRequest(trade, weir.Domain("unknown")),
		weir.NewRequest(trade, weir.Cost(2)),
		weir.NewRequest(trade, weir.Levels()),
	}
	results := client.CheckBatch(ctx, requests...)
	equal(t, "results", len(results), len(requests))
	succeeded(t, results[0].Err)
	equal(t, "remaining", results[0].Remaining, 1)
	equal(t, "field", failed(t, results[1].Err, weir.ErrInvalidRequest).Field, "key")
	failed(t, results[2].Err, weir.ErrNotFound)
	equal(t, "allowed", results[3].Allowed, false)
	equal(t, "binding", results[4].Binding.Name, "trades")

	// Requests may be reused: each call is charged.
	again := client.CheckBatch(ctx, weir.NewRequest(many), weir.NewRequest(many))
	equal(t, "remaining", again[1].Remaining, manyLimit-2)
	one := []weir.Request{weir.NewRequest(many)}
	for left := uint64(manyLimit - 3); left > manyLimit-5; left-- {
		equal(t, "remaining", client.CheckBatch(ctx, one...)[0].Remaining, left)
	}
}

func TestTheLargestBatchWithLevelsIsAnswered(t *testing.T) {
	limits := ""
	for i := range 16 {
		limits += fmt.Sprintf("{ gcra: { burst: 99999, count: 1, period: 1h }, name: %02d%s }, ", i, strings.Repeat("x", 230))
	}
	client := connect(t, weirtest.Start(t, "schema: { all: { limits: ["+limits+"] } }").Grpc)
	requests := make([]weir.Request, 1000)
	for i := range requests {
		requests[i] = weir.NewRequest(weir.Key{"all"}, weir.Levels())
	}
	for _, result := range client.CheckBatch(ctx, requests...) {
		succeeded(t, result.Err)
		equal(t, "levels", len(result.Levels), 16)
	}
}

func TestCheckBatchWithoutService(t *testing.T) {
	client := connect(t, weirtest.FreeAddress(t), weir.WithDeadline(50*time.Millisecond))
	results := client.CheckBatch(ctx, weir.NewRequest(trade), weir.NewRequest(trade, weir.OnFailure(weir.Deny)))
	failed(t, results[0].Err, weir.ErrUnavailable)
	succeeded(t, results[1].Err)
	equal(t, "source", results[1].Source, weir.Fallback)
	equal(t, "allowed", results[1].Allowed, false)
}

func TestCheckAll(t *testing.T) {
	_, client := started(t)
	other := weir.Key{"user", "berta", "trade"}
	both := []weir.Request{weir.NewRequest(trade, weir.Cost(2)), weir.NewRequest(other)}
	all, err := client.CheckAll(ctx, both...)
	succeeded(t, err)
	equal(t, "allowed", all.Allowed, true)
	equal(t, "remaining", all.Decisions[1].Remaining, 2)

	all, err = client.CheckAll(ctx, both...)
	succeeded(t, err)
	equal(t, "allowed", all.Allowed, false)
	equal(t, "its own limits", all.Decisions[1].Allowed, true)
	equal(t, "retry", all.RetryAfter, all.Decisions[0].RetryAfter)
	equal(t, "not charged", remaining(t, client, other), 2)

	_, err = client.CheckAll(ctx)
	failed(t, err, weir.ErrInvalidRequest)
	_, err = client.CheckAll(ctx, weir.NewRequest(trade), weir.NewRequest(weir.Key{}))
	equal(t, "field", failed(t, err, weir.ErrInvalidRequest).Field, "checks[1].key")
}

func TestCheckAllWithoutService(t *testing.T) {
	client := connect(t, weirtest.FreeAddress(t), weir.WithDeadline(50*time.Millisecond), weir.WithOnFailure(weir.Allow))
	all, err := client.CheckAll(ctx, weir.NewRequest(trade), weir.NewRequest(trade))
	succeeded(t, err)
	equal(t, "allowed", all.Allowed, true)
	equal(t, "source", all.Decisions[1].Source, weir.Fallback)
}

func TestAMalformedCheckOfABatchFailsAlone(t *testing.T) {
	_, client := started(t)
	results := client.CheckBatch(ctx,
		weir.NewRequest(trade),
		weir.NewRequest(weir.Key{"\xff"}),
		weir.NewRequest(trade, weir.Domain("unknown")),
		weir.NewRequest(trade, weir.RequestID("\xff"), weir.OnFailure(weir.Allow)),
		weir.NewRequest(trade, weir.Limits(&weirv1.Limit{Name: "\xff"})),
		weir.NewRequest(trade))
	equal(t, "results", len(results), 6)
	succeeded(t, results[0].Err)
	equal(t, "remaining", results[0].Remaining, 2)
	failed(t, results[1].Err, weir.ErrInvalidRequest)
	failed(t, results[2].Err, weir.ErrNotFound)
	failed(t, results[3].Err, weir.ErrInvalidRequest)
	failed(t, results[4].Err, weir.ErrInvalidRequest)
	succeeded(t, results[5].Err)
	equal(t, "remaining", results[5].Remaining, 1)
}

func TestTheLongestDeadlineOfABatchMayBeTheClients(t *testing.T) {
	var left time.Duration
	server := weirtest.Start(t, weirtest.Limits)
	client := connect(t, server.Grpc, weir.WithDialOptions(intercepting("CheckBatch", func(ctx context.Context) error {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return nil
	})))
	client.CheckBatch(ctx, weir.NewRequest(trade), weir.NewRequest(trade, weir.Deadline(5*time.Millisecond)))
	if left < weirtest.Patient/2 {
		t.Errorf("the deadline of one without is %v", left)
	}
	client.CheckBatch(ctx, weir.NewRequest(trade, weir.Deadline(time.Second)), weir.NewRequest(trade, weir.Deadline(2*time.Second)))
	if left > 2*time.Second {
		t.Errorf("the longest of two is %v", left)
	}
}
