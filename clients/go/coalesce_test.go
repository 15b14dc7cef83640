package weir_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const streamed = `weir_checks_total{domain="default",transport="grpc_stream",outcome="allowed"}`

// streaming waits until checks use the stream.
func streaming(t testing.TB, client *weir.Client, servers ...*weirtest.Server) {
	t.Helper()
	weirtest.Until(t, "a check over the stream", func() bool {
		check(t, client, weir.Key{"unlimited"}, weir.Cost(0))
		for _, server := range servers {
			if server.Metric(t, streamed) > 0 {
				return true
			}
		}
		return false
	})
}

func TestCoalescedChecksAreAsOthers(t *testing.T) {
	server, unary := started(t)
	client := connect(t, server.Grpc, weir.WithCoalescing(0))
	streaming(t, client, server)

	one, other := weir.Key{"user", "one", "trade"}, weir.Key{"user", "other", "trade"}
	for range 4 {
		want, got := check(t, unary, one, weir.Levels()), check(t, client, other, weir.Levels())
		equal(t, "allowed", got.Allowed, want.Allowed)
		equal(t, "remaining", got.Remaining, want.Remaining)
		equal(t, "binding", got.Binding.Name, want.Binding.Name)
		equal(t, "levels", len(got.Levels), len(want.Levels))
	}
	_, err := client.Check(ctx, weir.Key{})
	equal(t, "field", failed(t, err, weir.ErrInvalidRequest).Field, "key")
	_, err = client.Check(ctx, trade, weir.Domain("unknown"))
	failed(t, err, weir.ErrNotFound)
	// A string that is not UTF-8 must not end the stream for all callers.
	_, err = client.Check(ctx, weir.Key{"\xff"})
	failed(t, err, weir.ErrInvalidRequest)
	_, err = unary.Check(ctx, weir.Key{"\xff"})
	failed(t, err, weir.ErrInvalidRequest)
	equal(t, "breaker", client.BreakerState(), weir.BreakerClosed)
}

func TestChecksOfAStreamThatEndsAreRepeated(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	var ended atomic.Int64
	client := connect(t, server.Grpc, weir.WithCoalescing(0), weir.WithDialOptions(endingStreams("CheckStream", metadata.MD{}, func() error {
		ended.Add(1)
		return status.Error(codes.Unauthenticated, "the token is revoked")
	})))
	weirtest.Until(t, "a check over a stream that ends", func() bool {
		check(t, client, many)
		return ended.Load() > 0
	})
}

func TestConcurrentCoalescedChecksGetTheirOwnAnswers(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	// A small enough maximum that many checks are unary calls.
	client := connect(t, server.Grpc, weir.WithCoalescing(4))
	streaming(t, client, server)
	var workers sync.WaitGroup
	for worker := range 16 {
		workers.Go(func() {
			key := weir.Key{"many", fmt.Sprint(worker)}
			for left := uint64(manyLimit - 1); left > manyLimit-50; left-- {
				decision, err := client.Check(ctx, key)
				if err != nil || decision.Remaining != left {
					t.Errorf("%d: %+v, %v", left, decision, err)
					return
				}
			}
		})
	}
	workers.Wait()
}

func TestCoalescedChecksSurviveRestarts(t *testing.T) {
	c := newCluster(t)
	client := connect(t, c.target(), weir.WithCoalescing(0))
	streaming(t, client, c.replicas[:]...)
	load := newLoad(t, client)
	for i := range c.replicas {
		load.proceed(t, 200)
		c.replicas[i].Stop(t)
		load.proceed(t, 200)
		c.restart(t, i)
	}
	for i := range c.replicas {
		load.proceed(t, 200)
		c.replicas[i].Kill()
		load.proceed(t, 200)
		c.restart(t, i)
	}
	load.proceed(t, 200)
	answered := load.end()
	equal(t, "charged", manyLimit-remaining(t, client, many), answered)
	streaming(t, client, c.replicas[:]...)
}

func TestACoalescedCheckHasItsOwnDeadline(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	client := connect(t, server.Grpc, weir.WithCoalescing(0), weir.WithBreaker(0, 0))
	streaming(t, client, server)
	server.Freeze(t)
	slow := make(chan error)
	go func() {
		_, err := client.Check(ctx, trade)
		slow <- err
	}()
	_, err := client.Check(ctx, trade, weir.Deadline(20*time.Millisecond))
	failed(t, err, weir.ErrDeadlineExceeded)
	server.Thaw()
	succeeded(t, <-slow)
}

func TestAStreamThatDoesNotAnswerIsReplaced(t *testing.T) {
	c := newCluster(t)
	client := connect(t, c.target(), weir.WithCoalescing(0), weir.WithBreaker(0, 0), weir.WithRetries(0),
		weir.WithDeadline(400*time.Millisecond))
	streaming(t, client, c.replicas[:]...)
	frozen, other := c.replicas[0], c.replicas[1]
	if frozen.Metric(t, streamed) == 0 {
		frozen, other = other, frozen
	}
	before := other.Metric(t, streamed)
	frozen.Freeze(t)
	weirtest.Until(t, "checks go over a stream to the other replica", func() bool {
		_, _ = client.Check(ctx, many)
		return other.Metric(t, streamed) > before
	})
}

func TestARejectedStreamLeavesChecksAsTheyAre(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__MAX_OPEN_STREAMS=1")
	first := connect(t, server.Grpc, weir.WithCoalescing(0))
	streaming(t, first, server)
	const rejections = `weir_requests_rejected_total{listener="grpc",reason="open"}`
	before, started := server.Metric(t, streamed), time.Now()
	second := connect(t, server.Grpc, weir.WithCoalescing(0), weir.WithRetries(0), weir.WithBreaker(1, time.Second))
	weirtest.Until(t, "the stream is rejected", func() bool {
		check(t, second, many)
		return server.Metric(t, rejections) > 0
	})
	for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until); {
		check(t, second, many)
	}
	if n := server.Metric(t, rejections); n > 1+time.Since(started).Seconds() {
		t.Errorf("the stream is asked for %v times", n)
	}
	equal(t, "checks over the stream", server.Metric(t, streamed), before)
	// The stream is opened again.
	succeeded(t, first.Close())
	weirtest.Until(t, "a check over the stream", func() bool {
		check(t, second, many)
		return server.Metric(t, streamed) > before
	})
	equal(t, "breaker", second.BreakerState(), weir.BreakerClosed)
}
