package weir

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/OWNER/weir/clients/go/internal/hold"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{maxFailures: 5, pause: time.Second}
		call := func(o outcome) {
			t.Helper()
			permit, err := b.enter()
			if err != nil {
				t.Fatal(err)
			}
			b.leave(permit, o)
		}
		rejected := func() {
			t.Helper()
			if _, err := b.enter(); !errors.Is(err, ErrCircuitOpen) || !err.Outage() {
				t.Fatalf("%v", err)
			}
		}
		in := func(want BreakerState) {
			t.Helper()
			if state := b.state(); state != want {
				t.Fatalf("%v, not %v", state, want)
			}
		}
		for range 4 {
			call(outage)
		}
		// An answer resets the count.
		call(answered)
		for range 4 {
			call(outage)
		}
		call(unknown)
		in(BreakerClosed)
		call(outage)
		in(BreakerOpen)
		rejected()

		time.Sleep(time.Second)
		in(BreakerHalfOpen)
		probe, err := b.enter()
		if !probe.probe || err != nil {
			t.Fatal(probe, err)
		}
		rejected()
		b.leave(probe, outage)
		in(BreakerOpen)
		rejected()

		time.Sleep(time.Second)
		// A probe whose caller gives up lets the next call probe.
		call(unknown)
		call(answered)
		in(BreakerClosed)
		call(outage)
		in(BreakerClosed)
	})
}

func TestBreakerTurnedOff(t *testing.T) {
	b := breaker{}
	for range 100 {
		permit, err := b.enter()
		if err != nil {
			t.Fatal(err)
		}
		b.leave(permit, outage)
	}
}

func TestADeadlineThatIsOverIsNoOutage(t *testing.T) {
	b := breaker{maxFailures: 1}
	client := (&slowService{}).client(t)
	client.breaker = &b
	_, err := client.CheckAll(t.Context(), NewRequest(Key{"user"}, Deadline(-1)))
	if !errors.Is(err, ErrDeadlineExceeded) {
		t.Error(err)
	}
	call, failure := newLeases(nil, &b).send(newLease("", Key{"user"}, 0), hold.Request{}, true, time.Now())
	if call != nil || !errors.Is(failure, ErrDeadlineExceeded) {
		t.Error(call, failure)
	}
	if state := b.state(); state != BreakerClosed {
		t.Error(state)
	}
}

func TestOutagesOfCallsThatBeganBeforeTheLastAnswerDoNotCount(t *testing.T) {
	b := breaker{maxFailures: 2}
	sent := func() permit {
		t.Helper()
		permit, err := b.enter()
		if err != nil {
			t.Fatal(err)
		}
		return permit
	}
	in := func(want BreakerState) {
		t.Helper()
		if state := b.state(); state != want {
			t.Fatalf("%v, not %v", state, want)
		}
	}
	var together []permit
	for range 10 {
		together = append(together, sent())
	}
	b.leave(sent(), answered)
	for _, permit := range together {
		b.leave(permit, outage)
	}
	in(BreakerClosed)

	early := sent()
	b.leave(sent(), outage)
	b.leave(sent(), outage)
	in(BreakerHalfOpen)
	// The answer to a call that was sent before it opened closes it, regardless of the probe.
	probe := sent()
	b.leave(early, answered)
	b.leave(probe, outage)
	in(BreakerClosed)
}

func TestAnAnswerFreesThePlaceOfTheProbe(t *testing.T) {
	for _, end := range []outcome{unknown, outage} {
		b := breaker{maxFailures: 1}
		sent := func() permit {
			t.Helper()
			permit, err := b.enter()
			if err != nil {
				t.Fatal(err)
			}
			return permit
		}
		early := sent()
		b.leave(sent(), outage)
		former := sent()
		b.leave(early, answered)
		b.leave(sent(), outage)
		if probe := sent(); !former.probe || !probe.probe {
			t.Fatal(former, probe)
		}
		// It is not the place of this one any more.
		b.leave(former, end)
		if permit, err := b.enter(); !errors.Is(err, ErrCircuitOpen) {
			t.Errorf("%v: %v", end, permit)
		}
	}
}

func TestOutcomes(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	notUTF8 := status.Error(codes.Internal, "grpc: error while marshaling: string field contains invalid UTF-8")
	for _, test := range []struct {
		name    string
		ctx     context.Context
		callers bool
		err     error
		want    outcome
	}{
		{"a decision", over, true, nil, answered},
		{"an answer, after which the caller gives up", over, true, status.Error(codes.NotFound, ""), answered},
		{"the caller's deadline", over, true, status.Error(codes.DeadlineExceeded, ""), unknown},
		{"the caller's deadline, before its timer", t.Context(), true, status.Error(codes.DeadlineExceeded, ""), unknown},
		{"an outage before the caller's deadline", t.Context(), true, status.Error(codes.Unavailable, ""), outage},
		{"the client's deadline", t.Context(), false, status.Error(codes.DeadlineExceeded, ""), outage},
		{"a request that is not sent", t.Context(), false, notUTF8, unknown},
	} {
		if got := outcomeOf(test.ctx, test.callers, asError(test.err)); got != test.want {
			t.Errorf("%s: %v, not %v", test.name, got, test.want)
		}
	}
}
