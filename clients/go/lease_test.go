package weir_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	hot = weir.Key{"hot", "alex"}
	few = weir.Key{"few", "alex"}
	// Its lease lasts longer than any test.
	held = weir.Key{"held", "alex"}
)

const (
	hotLimit  = 100_000
	heldLimit = 1_000
)

// leasing checks a key until a lease decides. It returns the number of allowed checks, and the last decision.
func leasing(t testing.TB, client *weir.Client, key weir.Key) (allowed uint64, last weir.Decision) {
	t.Helper()
	weirtest.Until(t, "a lease decides", func() bool {
		for range 4 {
			last = check(t, client, key)
			if last.Allowed {
				allowed++
			}
		}
		return last.Source == weir.Lease
	})
	return allowed, last
}

// hotLoad checks the hot key from several clients.
type hotLoad struct {
	allowed, leased, failed atomic.Int64
	// Stop once nothing was allowed for 400 ms, longer than a lease lasts.
	exhaust atomic.Bool
	workers sync.WaitGroup
}

func newHotLoad(clients ...*weir.Client) *hotLoad {
	l := &hotLoad{}
	for _, client := range clients {
		l.workers.Go(func() { l.run(client) })
	}
	return l
}

func (l *hotLoad) run(client *weir.Client) {
	admitted := time.Now()
	for !l.exhaust.Load() || time.Since(admitted) < 400*time.Millisecond {
		decision, err := client.Check(ctx, hot)
		switch {
		case err != nil:
			l.failed.Add(1)
		case decision.Allowed:
			admitted = time.Now()
			l.allowed.Add(1)
			if decision.Source == weir.Lease {
				l.leased.Add(1)
			}
			if !l.exhaust.Load() {
				time.Sleep(200 * time.Microsecond)
			}
			continue
		}
		time.Sleep(time.Millisecond)
	}
}

// proceed waits until leases have allowed that many more checks.
func (l *hotLoad) proceed(t testing.TB, checks int64) {
	t.Helper()
	enough := l.leased.Load() + checks
	weirtest.Until(t, "leases decide", func() bool { return l.leased.Load() >= enough })
}

// end exhausts the limit, and verifies that no more was allowed than the limit.
func (l *hotLoad) end(t testing.TB) {
	t.Helper()
	l.exhaust.Store(true)
	l.workers.Wait()
	if allowed := l.allowed.Load(); allowed > hotLimit {
		t.Errorf("%d allowed of %d", allowed, hotLimit)
	}
}

func TestClientsWithLeasesKeepTheLimit(t *testing.T) {
	c := newCluster(t)
	clients := []*weir.Client{connect(t, c.target(), weir.WithLease()), connect(t, c.target(), weir.WithLease())}
	load := newHotLoad(clients...)
	load.proceed(t, 1000)
	for i := range c.replicas {
		c.replicas[i].Kill()
		load.proceed(t, 200)
		c.restart(t, i)
		load.proceed(t, 200)
	}
	for i := range c.replicas {
		c.replicas[i].Stop(t)
		load.proceed(t, 200)
		c.restart(t, i)
	}
	load.end(t)
	for _, client := range clients {
		succeeded(t, client.Close())
	}
	equal(t, "failed", load.failed.Load(), 0)
	if asked := load.allowed.Load() - load.leased.Load(); asked > load.leased.Load()/10 {
		t.Errorf("the service decided %d of %d", asked, load.allowed.Load())
	}
}

func TestAFrozenReplicaIsReplaced(t *testing.T) {
	c := newCluster(t)
	client := connect(t, c.target(), weir.WithLease(), weir.WithDeadline(100*time.Millisecond))
	load := newHotLoad(client, client, client, client)
	load.proceed(t, 200)
	for _, replica := range c.replicas {
		replica.Freeze(t)
		load.proceed(t, 3000)
		replica.Thaw()
	}
	load.end(t)
}

func TestALeaseRefusesForATime(t *testing.T) {
	server, client := started(t, weir.WithLease())
	leasing(t, client, few)
	var refusal weir.Decision
	weirtest.Until(t, "a lease refuses", func() bool {
		for refusal = check(t, client, few); refusal.Allowed; refusal = check(t, client, few) {
		}
		return refusal.Source == weir.Lease
	})
	if !refusal.Leased || refusal.RetryAfter <= 0 || refusal.Remaining != 0 {
		t.Errorf("%+v", refusal)
	}
	// A unit refills in a day, whether the service or a lease refuses. Until then the last units may still be granted.
	weirtest.Until(t, "leases tell what the service has said", func() bool {
		for leased := 0; leased < 100; {
			verdict := client.Guard(ctx, few)
			if verdict.Decision.RetryAfter < 23*time.Hour {
				return false
			}
			refused(t, verdict, http.StatusTooManyRequests, "quota-exceeded")
			matches(t, "Retry-After", verdict.Header.Get("Retry-After"), `8\d{4}`)
			if verdict.Decision.Source == weir.Lease {
				leased++
				equal(t, "headers", len(verdict.Header), 2)
			}
		}
		return true
	})
	// After a reset other clients pass immediately, and this client soon.
	_, err := client.Reset(ctx, "", few)
	succeeded(t, err)
	equal(t, "another client", check(t, connect(t, server.Grpc), few).Allowed, true)
	weirtest.Until(t, "a check after the reset", func() bool { return check(t, client, few).Allowed })
}

func TestAPolicyEndsLeases(t *testing.T) {
	server, client := started(t, weir.WithLease())
	leasing(t, client, hot)
	server.Enforce(t, strings.Replace(weirtest.Limits, "burst: 99999,", "burst: 9,", 1))
	weirtest.Until(t, "the lowered limit refuses", func() bool { return !check(t, client, hot).Allowed })

	leasing(t, client, weir.Key{"hot", "berta"})
	server.Enforce(t, strings.ReplaceAll(weirtest.Limits, "lease: true", "lease: false"))
	weirtest.Until(t, "the service decides alone", func() bool {
		since := time.Now()
		for time.Since(since) < 300*time.Millisecond {
			if check(t, client, weir.Key{"hot", "berta"}).Source != weir.Service {
				return false
			}
		}
		return true
	})
}

func TestCloseGivesBackWhatIsHeld(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	client, other := connect(t, server.Grpc, weir.WithLease()), connect(t, server.Grpc)
	allowed, last := leasing(t, client, held)
	if last.Remaining == 0 || remaining(t, other, held)+allowed >= heldLimit {
		t.Errorf("nothing is held: %+v", last)
	}
	goroutines := runtime.NumGoroutine()
	succeeded(t, client.Close())
	equal(t, "free", remaining(t, other, held), heldLimit-allowed)
	weirtest.Until(t, "goroutines end", func() bool { return runtime.NumGoroutine() < goroutines-2 })
	_, err := client.Check(ctx, held)
	if err == nil {
		t.Error("a closed client decides")
	}
}

func TestWhatIsHeldOutlivesTheService(t *testing.T) {
	server, client := started(t, weir.WithLease(), weir.WithDeadline(time.Second), weir.WithRetries(0))
	_, last := leasing(t, client, held)
	server.Kill()
	for left := last.Remaining; left > 0; left-- {
		decision := check(t, client, held)
		equal(t, "source", decision.Source, weir.Lease)
		equal(t, "remaining", decision.Remaining, left-1)
	}
	decision := check(t, client, held, weir.OnFailure(weir.Deny), weir.UseLease(true))
	equal(t, "source", decision.Source, weir.Fallback)
	weirtest.Until(t, "the circuit breaker opens", func() bool {
		_, err := client.Check(ctx, held)
		if err == nil {
			t.Fatal("a check without units")
		}
		return client.BreakerState() == weir.BreakerOpen
	})
}

func TestWhatNoLeaseCanDecide(t *testing.T) {
	server, client := started(t, weir.WithLease())
	leasing(t, client, hot)
	for name, option := range map[string]weir.CheckOption{
		"preview": weir.Cost(0), "refund": weir.Cost(-1), "factor": weir.Factor(2), "dry run": weir.DryRun(), "id": weir.RequestID("one"),
		"limits": weir.Limits(), "wait": weir.MaxWait(time.Second), "off": weir.UseLease(false),
	} {
		equal(t, name, check(t, client, hot, option).Source, weir.Service)
	}
	for range 20 {
		equal(t, "a key that is not leased", check(t, client, many).Source, weir.Service)
		_, err := client.Check(ctx, weir.Key{"\xff"})
		failed(t, err, weir.ErrInvalidRequest)
		_, err = client.Check(ctx, weir.Key{})
		equal(t, "field", failed(t, err, weir.ErrInvalidRequest).Field, "key")
		_, err = client.Check(ctx, hot, weir.Domain("unknown"))
		failed(t, err, weir.ErrNotFound)
	}
	plain := connect(t, server.Grpc)
	for range 20 {
		equal(t, "without leases", check(t, plain, hot).Source, weir.Service)
	}
	weirtest.Until(t, "a lease by the option", func() bool { return check(t, plain, hot, weir.UseLease(true)).Source == weir.Lease })
	weirtest.Until(t, "a cost", func() bool { return check(t, plain, hot, weir.UseLease(true), weir.Cost(3)).Source == weir.Lease })
}

func TestAServiceWithoutStreamsOfLeases(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__MAX_OPEN_STREAMS=1")
	streaming(t, connect(t, server.Grpc, weir.WithCoalescing(0)), server)
	older := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption) (grpc.ClientStream, error) {
		return open(ctx, desc, conn, strings.Replace(method, "Lease", "Unknown", 1), options...)
	}
	for _, client := range []*weir.Client{
		connect(t, server.Grpc, weir.WithLease()),
		connect(t, server.Grpc, weir.WithLease(), weir.WithDialOptions(grpc.WithStreamInterceptor(older))),
	} {
		for range 100 {
			equal(t, "source", check(t, client, hot).Source, weir.Service)
		}
	}
}

func TestACheckOfARejectedStreamKeepsItsDeadline(t *testing.T) {
	const deadline = 20 * time.Second
	server := weirtest.Start(t, weirtest.Limits)
	var rejected, until time.Time
	reject := func() error {
		rejected = time.Now()
		return status.Error(codes.ResourceExhausted, "too many streams")
	}
	record := func(ctx context.Context) error {
		until, _ = ctx.Deadline()
		return nil
	}
	client := connect(t, server.Grpc, weir.WithLease(), weir.WithDeadline(deadline),
		weir.WithDialOptions(endingStreams("Lease", nil, reject), intercepting("Check", record)))
	weirtest.Until(t, "a check of a rejected stream", func() bool {
		check(t, client, hot)
		return !rejected.IsZero()
	})
	if !until.Before(rejected.Add(deadline)) {
		t.Errorf("the check has %v more than its deadline", until.Sub(rejected)-deadline)
	}
}

func TestMetricsOfLeases(t *testing.T) {
	reader := metric.NewManualReader()
	_, client := started(t, weir.WithLease(), weir.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	var sources [3]int64
	for range 500 {
		sources[check(t, client, hot).Source]++
	}
	got := series(t, reader)
	equal(t, "service", got["weir.client.checks{domain=default,outcome=allowed,source=service}"], sources[weir.Service])
	equal(t, "lease", got["weir.client.checks{domain=default,outcome=allowed,source=lease}"], sources[weir.Lease])
	equal(t, "durations", got["weir.client.duration{domain=default}"], sources[weir.Service])
	if sources[weir.Lease] == 0 {
		t.Error("no lease")
	}
}

func TestALeasedCheckAllocatesNothing(t *testing.T) {
	_, client := started(t, weir.WithLease())
	ample := weir.Key{"ample", "alex"}
	weirtest.Until(t, "no allocation", func() bool {
		// Renewals allocate, but they are few.
		return testing.AllocsPerRun(1000, func() { check(t, client, ample) }) == 0
	})
}
