package weir_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
)

var many = weir.Key{"many", "alex"}

const manyLimit = 1_000_000

// cluster is two replicas with one Redis.
type cluster struct {
	redis    []string
	replicas [2]*weirtest.Server
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{redis: weirtest.Redis(t)}
	for i := range c.replicas {
		c.replicas[i] = weirtest.Start(t, weirtest.Limits, c.redis...)
	}
	return c
}

func (c *cluster) target() string {
	return c.replicas[0].Grpc + "," + c.replicas[1].Grpc
}

// restart restarts a replica that has ended, on the same address.
func (c *cluster) restart(t testing.TB, i int) {
	t.Helper()
	c.replicas[i] = weirtest.Start(t, weirtest.Limits, append(c.redis, "WEIR_GRPC__LISTEN="+c.replicas[i].Grpc)...)
}

// load checks one key from several goroutines until it is stopped.
type load struct {
	answered atomic.Int64
	stop     chan struct{}
	workers  sync.WaitGroup
}

func newLoad(t testing.TB, client *weir.Client) *load {
	l := &load{stop: make(chan struct{})}
	for range 8 {
		l.workers.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if decision, err := client.Check(context.Background(), many); err != nil || !decision.Allowed || decision.Degraded {
					t.Errorf("%+v, %v", decision, err)
					return
				}
				l.answered.Add(1)
			}
		})
	}
	return l
}

// proceed waits for that many more answers.
func (l *load) proceed(t testing.TB, answers int64) {
	t.Helper()
	enough := l.answered.Load() + answers
	weirtest.Until(t, "checks go on", func() bool { return l.answered.Load() >= enough || t.Failed() })
}

// end stops the load, and returns the number of answers.
func (l *load) end() uint64 {
	close(l.stop)
	l.workers.Wait()
	return uint64(l.answered.Load())
}

func balanced(t testing.TB, c *cluster) {
	t.Helper()
	for _, replica := range c.replicas {
		if replica.Metric(t, `weir_checks_total{domain="default",transport="grpc",outcome="allowed"}`) == 0 {
			t.Error("a replica has no checks")
		}
	}
}

func TestKilledReplicasFailNoCallAndChargeOnce(t *testing.T) {
	c := newCluster(t)
	client := connect(t, c.target())
	load := newLoad(t, client)
	load.proceed(t, 200)
	balanced(t, c)
	for i := range c.replicas {
		c.replicas[i].Kill()
		load.proceed(t, 200)
		c.restart(t, i)
		load.proceed(t, 200)
	}
	answered := load.end()
	equal(t, "charged", manyLimit-remaining(t, client, many), answered)
}

func TestRollingRestartFailsNoCall(t *testing.T) {
	c := newCluster(t)
	client := connect(t, c.target())
	load := newLoad(t, client)
	load.proceed(t, 200)
	for i := range c.replicas {
		c.replicas[i].Stop(t)
		load.proceed(t, 200)
		c.restart(t, i)
		load.proceed(t, 200)
	}
	answered := load.end()
	equal(t, "charged", manyLimit-remaining(t, client, many), answered)
}

func TestARestartOfTheOnlyReplicaFailsNoCall(t *testing.T) {
	c := newCluster(t)
	client := connect(t, c.replicas[0].Grpc)
	load := newLoad(t, client)
	load.proceed(t, 50)
	c.replicas[0].Kill()
	c.restart(t, 0)
	load.proceed(t, 50)
	answered := load.end()
	equal(t, "charged", manyLimit-remaining(t, client, many), answered)
}

func TestBreakerOpensAndCloses(t *testing.T) {
	server, client := started(t, weir.WithBreaker(3, 200*time.Millisecond))
	address := server.Grpc
	check(t, client, trade)
	server.Kill()
	for i := range 3 {
		_, err := client.Check(context.Background(), trade, weir.Deadline(20*time.Millisecond))
		failed(t, err, weir.ErrUnavailable)
		equal(t, fmt.Sprintf("open after %d", i+1), client.BreakerState() == weir.BreakerOpen, i == 2)
	}
	_, err := client.Check(context.Background(), trade)
	e := failed(t, err, weir.ErrCircuitOpen)
	if !e.Outage() || e.RetryAfter <= 0 {
		t.Errorf("%+v", e)
	}
	equal(t, "fallback", check(t, client, trade, weir.OnFailure(weir.Allow)).Source, weir.Fallback)

	weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__LISTEN="+address)
	weirtest.Until(t, "a probe succeeds", func() bool {
		_, err := client.Check(context.Background(), trade)
		return err == nil
	})
	equal(t, "state", client.BreakerState(), weir.BreakerClosed)
}

func TestRetriesTurnedOff(t *testing.T) {
	server, client := started(t, weir.WithRetries(0))
	check(t, client, trade)
	// Without a request id the service remembers no answer.
	equal(t, "keys", server.Metric(t, "weir_keys"), 2)
	server.Kill()
	_, err := client.Check(context.Background(), trade)
	failed(t, err, weir.ErrUnavailable)
}

func TestPreviewsHaveNoID(t *testing.T) {
	server, client := started(t)
	check(t, client, trade, weir.Cost(0))
	check(t, client, trade, weir.DryRun())
	equal(t, "keys", server.Metric(t, "weir_keys"), 0)
}
