package weirgrpc_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"github.com/OWNER/weir/clients/go/weirgrpc"
	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

func connect(target string, options ...weir.Option) *weir.Client {
	client, err := weir.New(target, append([]weir.Option{weir.WithDeadline(weirtest.Patient)}, options...)...)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func ExampleUnaryServerInterceptor() {
	client := connect(os.Getenv("WEIR_ADDR"))
	defer client.Close()
	user := weirgrpc.Metadata("x-user") // Behind a proxy that sets it; with mTLS weirgrpc.Principal().
	key := weirgrpc.Path(weirgrpc.Text("user"), user, weirgrpc.Text("trade"))
	server := grpc.NewServer(
		grpc.UnaryInterceptor(weirgrpc.UnaryServerInterceptor(client, key)),
		grpc.StreamInterceptor(weirgrpc.StreamServerInterceptor(client, key, weir.OnFailure(weir.Deny))))
	called, stop := serve(server)
	defer stop()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", "alex")
	for range 7 {
		_, err := called.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// OK
	// OK
	// OK
	// OK
	// ResourceExhausted
}

// serve serves a health service, as an example of any service.
func serve(server *grpc.Server) (called grpc_health_v1.HealthClient, stop func()) {
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return grpc_health_v1.NewHealthClient(conn), func() {
		conn.Close()
		server.Stop()
	}
}

func guarded(t *testing.T, client *weir.Client, key weirgrpc.KeyFunc, options ...weir.CheckOption) grpc_health_v1.HealthClient {
	t.Helper()
	called, stop := serve(grpc.NewServer(
		grpc.UnaryInterceptor(weirgrpc.UnaryServerInterceptor(client, key, options...)),
		grpc.StreamInterceptor(weirgrpc.StreamServerInterceptor(client, key, options...))))
	t.Cleanup(stop)
	return called
}

func one(md metadata.MD, name string) string { return strings.Join(md.Get(name), ",") }

// refusal verifies the status of a refused call.
func refusal(t *testing.T, err error, code codes.Code, trailer metadata.MD) {
	t.Helper()
	refused := status.Convert(err)
	if refused.Code() != code || one(trailer, "retry-after") == "" || len(refused.Details()) != 1 {
		t.Fatalf("%v, %v", err, trailer)
	}
	retry := refused.Details()[0].(*errdetails.RetryInfo).GetRetryDelay()
	if want := fmt.Sprint(retry.GetSeconds()); one(trailer, "retry-after") != want {
		t.Errorf("retry-after: %v, not %v", trailer, want)
	}
}

func TestUnaryCallsAndStreams(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	client := connect(server.Grpc)
	defer client.Close()
	ctx := context.Background()
	called := guarded(t, client, weirgrpc.Path(weirgrpc.Text("user"), weirgrpc.Text("alex"), weirgrpc.Text("trade")))
	var header, trailer metadata.MD
	for _, left := range []string{"r=2", "r=1"} {
		if _, err := called.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if one(header, "ratelimit") != `"trades";`+left || one(header, "ratelimit-policy") != `"trades";q=3` {
			t.Errorf("%v", header)
		}
	}
	watch, err := called.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	if header, _ := watch.Header(); !strings.HasPrefix(one(header, "ratelimit"), `"trades";r=0;t=86`) {
		t.Errorf("%v", header)
	}
	_, err = called.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
	refusal(t, err, codes.ResourceExhausted, trailer)
	watch, err = called.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = watch.Recv()
	refusal(t, err, codes.ResourceExhausted, watch.Trailer())
}

func TestABanUntilTheYear9999HasRetryInfo(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	client := connect(server.Grpc)
	defer client.Close()
	server.Ban(t)
	called := guarded(t, client, weirgrpc.Path(weirgrpc.Text("user")))
	var trailer metadata.MD
	_, err := called.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
	refusal(t, err, codes.ResourceExhausted, trailer)
	if seconds := one(trailer, "retry-after"); len(seconds) < 10 {
		t.Errorf("retry-after: %s", seconds)
	}
}

// sendingUnary and sendingStream send the header before the guard can add to it.
func sendingUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := grpc.SendHeader(ctx, nil); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

func sendingStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	return handler(server, stream)
}

func TestAHeaderThatIsSentAlreadyFailsNoCall(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	client := connect(server.Grpc)
	defer client.Close()
	key := weirgrpc.Path(weirgrpc.Text("user"), weirgrpc.Text("alex"), weirgrpc.Text("trade"))
	called, stop := serve(grpc.NewServer(
		grpc.ChainUnaryInterceptor(sendingUnary, weirgrpc.UnaryServerInterceptor(client, key)),
		grpc.ChainStreamInterceptor(sendingStream, weirgrpc.StreamServerInterceptor(client, key))))
	defer stop()
	ctx := context.Background()
	for range 2 {
		if _, err := called.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
	}
	watch, err := called.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Error(err)
	}
	var trailer metadata.MD
	_, err = called.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
	refusal(t, err, codes.ResourceExhausted, trailer)
}

func TestACallThatEndsWhileItWaitsIsNotHandled(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	client := connect(server.Grpc)
	defer client.Close()
	queue := weir.Limits(weir.NewLimit(&weirv1.LeakyQueue{Count: 1, Period: durationpb.New(time.Hour), Burst: 5}))
	guard := weirgrpc.UnaryServerInterceptor(client, weirgrpc.Path(weirgrpc.Text("queue")), queue, weir.MaxWait(time.Hour))
	for _, want := range []codes.Code{codes.OK, codes.DeadlineExceeded} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		handled := false
		_, err := guard(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
			handled = true
			return nil, nil
		})
		if status.Code(err) != want || handled != (want == codes.OK) {
			t.Errorf("%v, handled %v, not %v", err, handled, want)
		}
	}
}

func TestWithoutService(t *testing.T) {
	client := connect(weirtest.FreeAddress(t), weir.WithDeadline(50*time.Millisecond))
	defer client.Close()
	ctx := context.Background()
	var trailer metadata.MD
	key := weirgrpc.Path(weirgrpc.Method())
	if _, err := guarded(t, client, key).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	_, err := guarded(t, client, key, weir.OnFailure(weir.Deny)).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
	refusal(t, err, codes.Unavailable, trailer)
	nothing := func(context.Context, string) weir.Key { return nil }
	if _, err := guarded(t, client, nothing, weir.OnFailure(weir.Deny)).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

func TestSegments(t *testing.T) {
	client := connect(weirtest.FreeAddress(t), weir.WithDeadline(time.Millisecond))
	defer client.Close()
	path := weirgrpc.Path(weirgrpc.Method(), weirgrpc.PeerIP(), weirgrpc.Metadata("x-user"), weirgrpc.Principal())
	keys := make(chan weir.Key, 1)
	called := guarded(t, client, func(ctx context.Context, method string) weir.Key {
		keys <- path(ctx, method)
		return nil
	})
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", "alex")
	if _, err := called.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%q", <-keys); got != `["grpc.health.v1.Health/Check" "127.0.0.1" "alex" ""]` {
		t.Error(got)
	}
}
