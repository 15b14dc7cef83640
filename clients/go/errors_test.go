package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc/codes"
)

func TestMistakesOfARequest(t *testing.T) {
	server, _ := started(t)
	// None of these is an outage, so OnFailure does not apply.
	client := connect(t, server.Grpc, weir.WithOnFailure(weir.Allow))
	ctx := context.Background()

	_, err := client.Check(ctx, weir.Key{})
	e := failed(t, err, weir.ErrInvalidRequest)
	equal(t, "field", e.Field, "key")
	if want := "weir: invalid request: key: a key must have 1 to 32 segments"; !strings.HasPrefix(e.Error(), want) {
		t.Errorf("%v", e)
	}
	_, err = client.Check(ctx, weir.Key{"a"}, weir.Limits(weir.NewLimit(&weirv1.Gcra{})))
	equal(t, "field", failed(t, err, weir.ErrInvalidRequest).Field, "limit_spec.limits[0].gcra.period")

	_, err = client.Check(ctx, trade, weir.Domain("unknown"))
	e = failed(t, err, weir.ErrNotFound)
	equal(t, "code", e.Code, codes.NotFound)
	equal(t, "outage", e.Outage(), false)

	_, err = client.Check(ctx, weir.Key{"exports", "alex"})
	failed(t, err, weir.ErrFailedPrecondition)
	equal(t, "breaker", client.BreakerState(), weir.BreakerClosed)
}

func TestPermissionDenied(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits, "WEIR_LIMIT_SPEC=deny", "WEIR_RESET=authenticated")
	client := connect(t, server.Grpc, weir.WithOnFailure(weir.Allow))
	_, err := client.Check(context.Background(), trade, weir.Limits())
	failed(t, err, weir.ErrPermissionDenied)
	_, err = client.Reset(context.Background(), "", trade)
	failed(t, err, weir.ErrPermissionDenied)
}

func TestUnavailable(t *testing.T) {
	client := connect(t, weirtest.FreeAddress(t), weir.WithDeadline(200*time.Millisecond))
	_, err := client.Check(context.Background(), trade)
	e := failed(t, err, weir.ErrUnavailable)
	equal(t, "outage", e.Outage(), true)
	_, err = client.Reset(context.Background(), "", trade)
	failed(t, err, weir.ErrUnavailable)
}

// silent accepts connections and never answers.
func silent(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	succeeded(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}

func TestDeadline(t *testing.T) {
	server, client := started(t)
	check(t, client, trade)
	server.Freeze(t)
	for _, options := range [][]weir.CheckOption{{weir.Deadline(50 * time.Millisecond)}, {weir.Deadline(50 * time.Millisecond), weir.Cost(0)}} {
		started := time.Now()
		_, err := client.Check(context.Background(), trade, options...)
		failed(t, err, weir.ErrDeadlineExceeded)
		failed(t, err, context.DeadlineExceeded)
		if took := time.Since(started); took < 50*time.Millisecond || took > 10*time.Second {
			t.Errorf("took %v", took)
		}
	}
	server.Thaw()
	check(t, client, trade)
}

func TestDeadlineByDefault(t *testing.T) {
	client, err := weir.New(silent(t))
	succeeded(t, err)
	defer client.Close()
	started := time.Now()
	_, err = client.Check(context.Background(), trade)
	failed(t, err, weir.ErrDeadlineExceeded)
	if took := time.Since(started); took < 50*time.Millisecond || took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestTheCallersContextEndsACall(t *testing.T) {
	client := connect(t, silent(t), weir.WithOnFailure(weir.Allow), weir.WithBreaker(1, time.Hour))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err := client.Check(ctx, trade)
	failed(t, err, context.Canceled)
	// A cancelled call does not count as an outage.
	equal(t, "breaker", client.BreakerState(), weir.BreakerClosed)
}

// In a gRPC server the deadline is set by its client, which could otherwise open the circuit breaker.
func TestTheCallersDeadlineDoesNotOpenTheBreaker(t *testing.T) {
	server, client := started(t, weir.WithBreaker(1, time.Hour))
	check(t, client, trade)
	server.Freeze(t)
	// Many short calls: gRPC ends some of them before the timer of their context fires.
	for range 2000 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
		_, err := client.Check(ctx, trade)
		cancel()
		failed(t, err, weir.ErrDeadlineExceeded)
		if client.BreakerState() != weir.BreakerClosed {
			t.Fatal("the circuit breaker is open")
		}
	}
	_, err := client.Check(context.Background(), trade, weir.Deadline(10*time.Millisecond))
	failed(t, err, weir.ErrDeadlineExceeded)
	equal(t, "breaker", client.BreakerState(), weir.BreakerOpen)
}

func TestAProbeThatEndsWithItsClientLeavesTheBreakerOpen(t *testing.T) {
	client := connect(t, silent(t), weir.WithBreaker(1, 0))
	_, err := client.Check(context.Background(), trade, weir.Deadline(10*time.Millisecond))
	failed(t, err, weir.ErrDeadlineExceeded)
	time.AfterFunc(10*time.Millisecond, func() { client.Close() })
	_, err = client.Check(context.Background(), trade)
	failed(t, err, weir.ErrUnavailable)
	equal(t, "breaker", client.BreakerState(), weir.BreakerHalfOpen)
}

func TestALongDeadline(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	for _, deadline := range []time.Duration{25 * time.Hour, math.MaxInt64} {
		for _, option := range []weir.Option{weir.WithRetries(1), weir.WithCoalescing(0), weir.WithLease()} {
			client := connect(t, server.Grpc, weir.WithDeadline(deadline), weir.WithBreaker(1, deadline), option)
			hot := weir.Key{"hot", fmt.Sprint(deadline)}
			for range 20 {
				equal(t, "allowed", check(t, client, hot).Allowed, true)
			}
			equal(t, "allowed", check(t, client, hot, weir.Deadline(deadline)).Allowed, true)
			slot, err := client.Slot(ctx, weir.Key{"exports", "alex"})
			succeeded(t, err)
			succeeded(t, slot.Release(ctx))
			client.Close()
		}
	}
}

func TestOnFailure(t *testing.T) {
	client := connect(t, weirtest.FreeAddress(t), weir.WithDeadline(50*time.Millisecond), weir.WithOnFailure(weir.Allow))
	for _, test := range []struct {
		name    string
		allowed bool
		options []weir.CheckOption
	}{
		{"the client's", true, nil},
		{"deny", false, []weir.CheckOption{weir.OnFailure(weir.Deny)}},
	} {
		decision := check(t, client, trade, test.options...)
		equal(t, test.name, decision.Allowed, test.allowed)
		equal(t, "source", decision.Source, weir.Fallback)
		failed(t, decision.Err, weir.ErrUnavailable)
	}
	_, err := client.Check(context.Background(), trade, weir.OnFailure(weir.ReturnError))
	failed(t, err, weir.ErrUnavailable)
}

func TestOverload(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__MAX_REQUESTS_PER_SECOND=1")
	client := connect(t, server.Grpc)
	weirtest.Until(t, "the service sheds load", func() bool {
		_, err := client.Check(context.Background(), trade, weir.Cost(0))
		if err == nil {
			return false
		}
		e := failed(t, err, weir.ErrOverloaded)
		return e.Outage() && e.RetryAfter > 0
	})
}

func TestMistakesOfAConfiguration(t *testing.T) {
	directory := t.TempDir()
	empty := filepath.Join(directory, "empty")
	succeeded(t, os.WriteFile(empty, nil, 0o600))
	for name, option := range map[string]weir.Option{
		"no token file": weir.WithTokenFile(filepath.Join(directory, "none")),
		"empty token":   weir.WithTokenFile(empty),
		"no CA":         weir.WithTLS(weir.TLS{CA: filepath.Join(directory, "none")}),
		"empty CA":      weir.WithTLS(weir.TLS{CA: empty}),
		"no key":        weir.WithTLS(weir.TLS{Cert: empty}),
	} {
		if _, err := weir.New("127.0.0.1:1", option); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := weir.New("127.0.0.1:1,nowhere"); err == nil {
		t.Error("a list without a port: no error")
	}
}

func TestErrorsAreTyped(t *testing.T) {
	var e *weir.Error
	if _, err := connect(t, weirtest.FreeAddress(t), weir.WithDeadline(10*time.Millisecond)).Check(context.Background(), trade); !errors.As(err, &e) {
		t.Error(err)
	}
}

func TestCallsOfAClosedClient(t *testing.T) {
	server, client := started(t)
	succeeded(t, client.Close())
	_, err := client.Check(ctx, trade)
	e := failed(t, err, weir.ErrUnavailable)
	equal(t, "message", e.Message, "the client is closed")
	for _, mode := range []weir.FailureMode{weir.Allow, weir.Deny} {
		equal(t, "allowed", check(t, client, trade, weir.OnFailure(mode)).Allowed, mode == weir.Allow)
		equal(t, "passes", client.Guard(ctx, trade, weir.OnFailure(mode)).Pass, mode == weir.Allow)
	}
	_, err = client.Reserve(ctx, trade, 1, weir.TTL(time.Minute))
	failed(t, err, weir.ErrUnavailable)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.Check(gone, trade)
	failed(t, err, context.Canceled)

	// Calls in flight fail in the same way.
	for _, options := range [][]weir.Option{nil, {weir.WithCoalescing(0)}} {
		client = connect(t, server.Grpc, options...)
		if options != nil {
			streaming(t, client, server)
		}
		check(t, client, trade, weir.Cost(0))
		server.Freeze(t)
		inFlight := make(chan error)
		go func() {
			_, err := client.Check(ctx, trade, weir.Cost(0))
			inFlight <- err
		}()
		succeeded(t, client.Close())
		failed(t, <-inFlight, weir.ErrUnavailable)
		server.Thaw()
	}
}
