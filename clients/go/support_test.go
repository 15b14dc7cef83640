package weir_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// connect returns a client with a deadline for a busy machine.
func connect(t testing.TB, target string, options ...weir.Option) *weir.Client {
	t.Helper()
	client, err := weir.New(target, append([]weir.Option{weir.WithDeadline(weirtest.Patient)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Canceled: the test has closed it already.
		if err := client.Close(); err != nil && status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
	return client
}

// started returns a service with the usual limits, and its client.
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

// endedStream is a stream that ends after a message was sent.
type endedStream struct {
	grpc.ClientStream
	ctx    context.Context
	header metadata.MD
	sent   chan struct{}
	end    func() error
}

func (s *endedStream) Header() (metadata.MD, error) { return s.header, nil }

func (s *endedStream) CloseSend() error { return nil }

func (s *endedStream) SendMsg(any) error {
	select {
	case s.sent <- struct{}{}:
	default:
	}
	return nil
}

func (s *endedStream) RecvMsg(any) error {
	select {
	case <-s.sent:
		return s.end()
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// endingStreams makes streams of a method end. With a nil header the service has rejected them.
func endingStreams(method string, header metadata.MD, end func() error) grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, full string, open grpc.Streamer,
		options ...grpc.CallOption) (grpc.ClientStream, error) {
		if !strings.HasSuffix(full, "/"+method) {
			return open(ctx, desc, conn, full, options...)
		}
		return &endedStream{ctx: ctx, header: header, sent: make(chan struct{}, 1), end: end}, nil
	})
}

// intercepting calls a function before each unary call of a method; if it fails, so does the call.
func intercepting(method string, before func(context.Context) error) grpc.DialOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, full string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption) error {
		if strings.HasSuffix(full, "/"+method) {
			if err := before(ctx); err != nil {
				return err
			}
		}
		return invoke(ctx, full, request, reply, conn, options...)
	})
}
