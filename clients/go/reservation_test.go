package weir_test

import (
	"context"
	"errors"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	ctx  = context.Background()
	user = weir.Key{"user", "alex"}
)

func reserve(t testing.TB, client *weir.Client, cost int64) *weir.Reservation {
	t.Helper()
	reservation, err := client.Reserve(ctx, user, cost, weir.TTL(time.Minute+time.Nanosecond))
	succeeded(t, err)
	return reservation
}

func TestReserveAndCommit(t *testing.T) {
	_, client := started(t)
	for _, test := range []struct {
		actual int64
		want   weir.Settlement
		left   uint64
	}{
		{4, weir.Settlement{Charged: 4, Refunded: 6}, 96},
		{12, weir.Settlement{Charged: 12, Overage: 2}, 84},
	} {
		reservation := reserve(t, client, 10)
		equal(t, "allowed", reservation.Decision.Allowed, true)
		if reservation.ExpiresAfter < 50*time.Second || reservation.ExpiresAfter > time.Minute {
			t.Errorf("expires after %v", reservation.ExpiresAfter)
		}
		settlement, err := reservation.Commit(ctx, test.actual)
		succeeded(t, err)
		equal(t, "settlement", settlement, test.want)
		// A deferred Cancel: the first settlement counts.
		succeeded(t, reservation.Cancel(ctx))
		equal(t, "left", remaining(t, client, user), test.left)
	}
	settlement, err := reserve(t, client, 10).CommitAll(ctx)
	succeeded(t, err)
	equal(t, "in full", settlement, weir.Settlement{Charged: 10})
}

func TestCancelIsSentAfterTheContextHasEnded(t *testing.T) {
	_, client := started(t)
	reservation := reserve(t, client, 10)
	equal(t, "held", remaining(t, client, user), 90)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	succeeded(t, reservation.Cancel(gone))
	equal(t, "left", remaining(t, client, user), 100)
}

func TestACommitThatFailedIsNotCancelled(t *testing.T) {
	outage := status.Error(codes.Unavailable, "an outage")
	server := weirtest.Start(t, weirtest.Limits)
	client := connect(t, server.Grpc, weir.WithDialOptions(intercepting("Commit", func(context.Context) error { return outage })))
	func() {
		reservation := reserve(t, client, 10)
		defer func() { succeeded(t, reservation.Cancel(ctx)) }()
		_, err := reservation.Commit(ctx, 4)
		failed(t, err, weir.ErrUnavailable)
		equal(t, "held", remaining(t, client, user), 90)
	}()
	equal(t, "not given back", remaining(t, client, user), 90)

	reservation := reserve(t, client, 10)
	_, err := reservation.CommitAll(ctx)
	failed(t, err, weir.ErrUnavailable)
	outage = nil
	settlement, err := reservation.Commit(ctx, 4)
	succeeded(t, err)
	equal(t, "repeated", settlement, weir.Settlement{Charged: 4, Refunded: 6})
}

func TestRefusedReservations(t *testing.T) {
	_, client := started(t)
	refused := reserve(t, client, 101)
	equal(t, "allowed", refused.Decision.Allowed, false)
	succeeded(t, refused.Cancel(ctx))
	settlement, err := refused.CommitAll(ctx)
	succeeded(t, err)
	equal(t, "settlement", settlement, weir.Settlement{Degraded: true})
	_, err = client.Reserve(ctx, user, 1)
	equal(t, "without a ttl", failed(t, err, weir.ErrInvalidRequest).Field, "ttl")
}

func TestExpiredReservations(t *testing.T) {
	_, client := started(t)
	reservation, err := client.Reserve(ctx, user, 10, weir.TTL(20*time.Millisecond), weir.ReleaseOnExpiry())
	succeeded(t, err)
	weirtest.Until(t, "the reservation ends", func() bool { return remaining(t, client, user) == 100 })
	_, err = reservation.CommitAll(ctx)
	failed(t, err, weir.ErrNotFound)
}

func TestExtend(t *testing.T) {
	_, client := started(t)
	reservation := reserve(t, client, 10)
	// The service takes whole microseconds.
	for ttl, want := range map[time.Duration]time.Duration{time.Hour + time.Nanosecond: time.Hour, 0: time.Minute} {
		expiresAfter, err := reservation.Extend(ctx, ttl)
		succeeded(t, err)
		if expiresAfter < want*15/16 || expiresAfter > want {
			t.Errorf("%v: expires after %v", ttl, expiresAfter)
		}
	}
}

func TestReservationsWithoutService(t *testing.T) {
	client := connect(t, weirtest.FreeAddress(t), weir.WithDeadline(50*time.Millisecond))
	_, err := client.Reserve(ctx, user, 1, weir.TTL(time.Minute))
	failed(t, err, weir.ErrUnavailable)
	reservation, err := client.Reserve(ctx, user, 1, weir.TTL(time.Minute), weir.OnFailure(weir.Allow))
	succeeded(t, err)
	equal(t, "allowed", reservation.Decision.Allowed, true)
	settlement, err := reservation.Commit(ctx, 1)
	succeeded(t, err)
	equal(t, "settlement", settlement, weir.Settlement{Degraded: true})

	slot, err := client.Slot(ctx, exports, weir.OnFailure(weir.Allow))
	succeeded(t, err)
	succeeded(t, slot.Context().Err())
	succeeded(t, slot.Release(ctx))
}

func TestAReservationIsMadeOnceThoughItsReplicaIsKilled(t *testing.T) {
	c := newCluster(t)
	client := connect(t, c.target())
	const holders, each = 8, 10
	errs := make(chan error)
	for range holders {
		go func() {
			var err error
			for range each {
				_, one := client.Reserve(ctx, many, 1, weir.TTL(time.Hour))
				err = errors.Join(err, one)
			}
			errs <- err
		}()
	}
	c.replicas[0].Kill()
	for range holders {
		succeeded(t, <-errs)
	}
	equal(t, "held", manyLimit-remaining(t, client, many), holders*each)
}

var exports = weir.Key{"exports", "alex"}

func TestSlot(t *testing.T) {
	_, client := started(t)
	slot, err := client.Slot(ctx, exports)
	succeeded(t, err)
	equal(t, "allowed", slot.Decision.Allowed, true)
	other, err := client.Slot(ctx, exports)
	succeeded(t, err)
	equal(t, "allowed", other.Decision.Allowed, false)
	if other.Context().Err() == nil {
		t.Error("a refused slot has no context to work in")
	}
	succeeded(t, other.Release(ctx))

	gone, cancel := context.WithCancel(ctx)
	cancel()
	succeeded(t, slot.Release(gone))
	equal(t, "lost", slot.Lost(), false)
	if slot.Context().Err() == nil {
		t.Error("the context of a slot ends with it")
	}
	slot, err = client.Slot(ctx, exports)
	succeeded(t, err)
	equal(t, "given back", slot.Decision.Allowed, true)
	succeeded(t, slot.Release(ctx))
}

const extended = `weir_reservations_total{domain="default",outcome="extended"}`

func TestASlotIsExtendedWhileItIsHeld(t *testing.T) {
	server, client := started(t)
	started := time.Now()
	slot, err := client.Slot(ctx, exports, weir.TTL(3*time.Second))
	succeeded(t, err)
	weirtest.Until(t, "it is extended", func() bool {
		return server.Metric(t, extended) >= 4 && time.Since(started) > 3500*time.Millisecond || slot.Lost()
	})
	equal(t, "lost", slot.Lost(), false)
	equal(t, "free", check(t, client, exports, weir.Cost(0)).Remaining, 0)
	succeeded(t, slot.Release(ctx))
	equal(t, "free", check(t, client, exports, weir.Cost(0)).Remaining, 1)
}

func TestASlotOutlivesTheContextOfItsCall(t *testing.T) {
	server, client := started(t)
	call, cancel := context.WithCancel(ctx)
	slot, err := client.Slot(call, exports, weir.TTL(3*time.Second))
	succeeded(t, err)
	started := time.Now()
	cancel()
	if slot.Context().Err() == nil {
		t.Error("the context of the work outlives that of the call")
	}
	weirtest.Until(t, "it is extended", func() bool {
		return server.Metric(t, extended) >= 4 && time.Since(started) > 3500*time.Millisecond || slot.Lost()
	})
	equal(t, "lost", slot.Lost(), false)
	equal(t, "free", check(t, client, exports, weir.Cost(0)).Remaining, 0)
	succeeded(t, slot.Release(ctx))
	equal(t, "free", check(t, client, exports, weir.Cost(0)).Remaining, 1)

	call, cancel = context.WithCancel(ctx)
	slot, err = client.Slot(call, exports, weir.TTL(300*time.Millisecond))
	succeeded(t, err)
	cancel()
	server.Kill()
	weirtest.Until(t, "it is lost", slot.Lost)
}

func TestASlotIsLostWhenItsTimeIsOver(t *testing.T) {
	server, client := started(t)
	const ttl = 3 * time.Second
	slot, err := client.Slot(ctx, exports, weir.TTL(ttl))
	succeeded(t, err)
	over := time.Now().Add(ttl)
	// The last attempt to extend hangs.
	server.Freeze(t)
	weirtest.Until(t, "its time is over", func() bool { return time.Now().After(over) })
	equal(t, "lost", slot.Lost(), true)
	equal(t, "cause", context.Cause(slot.Context()), weir.ErrSlotLost)
	server.Thaw()
	succeeded(t, slot.Release(ctx))
}

func TestALostSlotIsNoticed(t *testing.T) {
	server, client := started(t)
	slot, err := client.Slot(ctx, exports, weir.TTL(300*time.Millisecond))
	succeeded(t, err)
	server.Kill()
	select {
	case <-slot.Context().Done():
	case <-time.After(weirtest.Patient):
		t.Fatal("not noticed")
	}
	equal(t, "lost", slot.Lost(), true)
	equal(t, "cause", context.Cause(slot.Context()), weir.ErrSlotLost)
	succeeded(t, slot.Release(ctx))
}
