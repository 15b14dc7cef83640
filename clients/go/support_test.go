package weir_test

import (
	"context"
	"errors"
	"testing"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// connect is a client that waits as long as a busy machine needs.
func connect(t testing.TB, target string, options ...weir.Option) *weir.Client {
	t.Helper()
	client, err := weir.New(target, append([]weir.Option{weir.WithDeadline(weirtest.Patient)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Canceled: the test has closed it.
		if err := client.Close(); err != nil && status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
	return client
}

// started is a service with the usual limits, and its client.
func started(t testing.TB, options ...weir.Option) (*weirtest.Server, *weir.Client) {
	t.Helper()
	server := weirtest.Start(t, weirtest.Limits)
	return server, connect(t, server.Grpc, options...)
}

func check(t testing.TB, client *weir.Client, key weir.Key, options ...weir.CheckOption) weir.Decision {
	t.Helper()
	decision, err := client.Check(context.Background(), key, options...)
	if err != nil {
		t.Fatal(err)
	}
	return decision
}

func remaining(t testing.TB, client *weir.Client, key weir.Key) uint64 {
	t.Helper()
	return check(t, client, key, weir.Cost(0)).Remaining
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, not %v", what, got, want)
	}
}

func succeeded(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func failed(t testing.TB, err, kind error) *weir.Error {
	t.Helper()
	var e *weir.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) {
		t.Fatalf("%v, not %v", err, kind)
	}
	return e
}
