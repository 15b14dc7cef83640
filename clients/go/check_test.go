package weir_test

import (
	"context"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/protobuf/types/known/durationpb"
)

var trade = weir.Key{"user", "alex", "trade"}

func TestCheckAllowsThenRefuses(t *testing.T) {
	_, client := started(t)
	for left := uint64(3); left > 0; left-- {
		decision := check(t, client, trade)
		equal(t, "allowed", decision.Allowed, true)
		equal(t, "limit", decision.Limit, 3)
		equal(t, "remaining", decision.Remaining, left-1)
		equal(t, "source", decision.Source, weir.Service)
	}
	decision := check(t, client, trade)
	equal(t, "allowed", decision.Allowed, false)
	if decision.RetryAfter < 23*time.Hour || decision.RetryAfter > 24*time.Hour || decision.NextAfter != decision.RetryAfter {
		t.Errorf("retry after %v, next after %v", decision.RetryAfter, decision.NextAfter)
	}
	if decision.Never || decision.Degraded || decision.Leased || decision.Binding != nil || decision.Levels != nil {
		t.Errorf("%+v", decision)
	}
}

func TestLevelsNameTheBindingLimit(t *testing.T) {
	_, client := started(t)
	decision := check(t, client, trade, weir.Levels())
	equal(t, "levels", len(decision.Levels), 2)
	if decision.Binding != &decision.Levels[1] {
		t.Fatalf("binding: %+v", decision.Binding)
	}
	equal(t, "name", decision.Binding.Name, "trades")
	equal(t, "depth", decision.Binding.Depth, 3)
	equal(t, "remaining", decision.Binding.Remaining, 2)
	equal(t, "name", decision.Levels[0].Name, "per-user")
	equal(t, "remaining", decision.Levels[0].Remaining, 99)
}

func TestPreviewsAndDryRunsChargeNothing(t *testing.T) {
	_, client := started(t)
	equal(t, "preview", check(t, client, trade, weir.Cost(0)).Remaining, 3)
	equal(t, "dry run", check(t, client, trade, weir.Cost(2), weir.DryRun()).Remaining, 1)
	equal(t, "afterwards", remaining(t, client, trade), 3)
}

func TestCostsFactorsAndRefunds(t *testing.T) {
	_, client := started(t)
	equal(t, "cost 2", check(t, client, trade, weir.Cost(2)).Remaining, 1)
	equal(t, "refund", check(t, client, trade, weir.Cost(-1)).Remaining, 2)
	equal(t, "too many", check(t, client, trade, weir.Cost(3)).Allowed, false)
	never := check(t, client, trade, weir.Cost(4))
	if !never.Never || never.RetryAfter != 0 {
		t.Errorf("never: %+v", never)
	}
	equal(t, "lifted", check(t, client, trade, weir.Cost(4), weir.Factor(0)).Allowed, true)
}

func TestLimitsOfTheRequest(t *testing.T) {
	_, client := started(t)
	minute := durationpb.New(time.Minute)
	limits := []*weirv1.Limit{
		weir.NewLimit(&weirv1.Gcra{Burst: 9, Count: 10, Period: minute}),
		weir.NewLimit(&weirv1.TokenBucket{Capacity: 10, Count: 10, Period: minute}),
		weir.NewLimit(&weirv1.LeakyBucket{Size: 10}),
		weir.NewLimit(&weirv1.LeakyQueue{Count: 10, Period: minute, Burst: 9, Delay: 9}),
		weir.NewLimit(&weirv1.FixedWindow{Count: 10, Period: minute}),
		weir.NewLimit(&weirv1.SlidingLog{Count: 10, Period: minute}),
		weir.NewLimit(&weirv1.SlidingWindow{Count: 10, Period: minute}),
		weir.NewLimit(&weirv1.SlidingBuckets{Count: 10, Period: minute, Resolution: durationpb.New(time.Second)}),
		weir.NewLimit(&weirv1.Decay{Max: 10, Resolution: minute, Decay: 2}),
		weir.NewLimit(&weirv1.SmoothBursty{Count: 10, Period: minute, MaxBurst: minute}),
		weir.NewLimit(&weirv1.WarmingUp{Count: 10, Period: minute, WarmUp: minute}),
		weir.NewLimit(&weirv1.Cycle{Count: 10, Period: minute}),
		weir.NewLimit(&weirv1.LegacyBucket{Size: ptr(10.0)}),
	}
	for _, limit := range limits {
		decision := check(t, client, weir.Key{"mine"}, weir.Limits(limit), weir.Charge(weirv1.Charge_CHARGE_ALL_OR_NOTHING), weir.Levels())
		if !decision.Allowed || len(decision.Levels) == 0 {
			t.Errorf("%v: %+v", limit, decision)
		}
	}
	slot := weir.NewLimit(&weirv1.Concurrency{Max: 1, Ttl: minute, Check: weirv1.OnCheck_ON_CHECK_PEEK})
	equal(t, "a slot is free", check(t, client, weir.Key{"mine"}, weir.Limits(slot)).Remaining, 1)
}

func TestMaxWait(t *testing.T) {
	_, client := started(t)
	queue := weir.Limits(weir.NewLimit(&weirv1.LeakyQueue{Count: 1, Period: durationpb.New(time.Minute), Burst: 5}))
	key := weir.Key{"queue"}
	check(t, client, key, queue)
	equal(t, "without a wait", check(t, client, key, queue).Allowed, false)
	// The service takes whole microseconds.
	if waits := check(t, client, key, queue, weir.MaxWait(time.Hour+time.Nanosecond)); !waits.Allowed || waits.Wait < 50*time.Second {
		t.Errorf("%+v", waits)
	}
}

func TestRequestIDIsChargedOnce(t *testing.T) {
	_, client := started(t)
	for _, repeated := range []bool{false, true} {
		decision := check(t, client, trade, weir.RequestID("5f0c1a5e-31d2-4f4e-a3b0-7d1b3c6b2d10"))
		equal(t, "repeated", decision.Repeated, repeated)
		equal(t, "remaining", decision.Remaining, 2)
	}
}

func TestReset(t *testing.T) {
	_, client := started(t)
	ctx := context.Background()
	check(t, client, trade)
	existed, err := client.Reset(ctx, "", trade)
	succeeded(t, err)
	equal(t, "existed", existed, true)
	equal(t, "remaining", remaining(t, client, trade), 3)
	check(t, client, trade)
	existed, err = client.ResetSubtree(ctx, "", weir.Key{"user"})
	succeeded(t, err)
	equal(t, "existed below", existed, true)
	existed, err = client.Reset(ctx, "", weir.Key{"user", "unseen"})
	succeeded(t, err)
	equal(t, "existed", existed, false)
}

func ptr[T any](value T) *T { return &value }
