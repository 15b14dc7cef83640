package weir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// token returns a new token, and its hash for the credentials file.
func token(t testing.TB) (value, sha256 string) {
	t.Helper()
	output, err := exec.Command(weirtest.Binary(), "token", "shop", "--json").Output()
	succeeded(t, err)
	var made struct{ Token, Sha256 string }
	succeeded(t, json.Unmarshal(output, &made))
	return made.Token, made.Sha256
}

func write(t testing.TB, path, content string) {
	t.Helper()
	temporary := path + ".tmp"
	succeeded(t, os.WriteFile(temporary, []byte(content), 0o600))
	succeeded(t, os.Rename(temporary, path))
}

func credentials(hash string) string {
	return fmt.Sprintf("callers: { shop: { roles: [check], tokens: [{ sha256: %s }] } }\n", hash)
}

func TestTLSAndTokens(t *testing.T) {
	cert, key := weirtest.Certificate(t, "weir")
	value, hash := token(t)
	file := filepath.Join(t.TempDir(), "callers.yaml")
	write(t, file, credentials(hash))
	server := weirtest.Start(t, weirtest.Limits, "WEIR_AUTH__FILE="+file, "WEIR_GRPC__TLS__CERT="+cert, "WEIR_GRPC__TLS__KEY="+key)
	tls := weir.WithTLS(weir.TLS{CA: cert})

	check(t, connect(t, server.Grpc, tls, weir.WithToken(value)), trade)
	check(t, connect(t, server.Grpc, weir.WithTLS(weir.TLS{CA: cert, ServerName: "weir"}), weir.WithToken(value)), trade)
	// With a list the name of each address is verified.
	check(t, connect(t, server.Grpc+","+server.Grpc, tls, weir.WithToken(value)), trade)

	for _, options := range [][]weir.Option{{tls}, {tls, weir.WithToken("guessed")}} {
		options = append(options, weir.WithOnFailure(weir.Allow))
		_, err := connect(t, server.Grpc, options...).Check(context.Background(), trade)
		failed(t, err, weir.ErrUnauthenticated)
	}
	_, err := connect(t, server.Grpc, tls, weir.WithToken(value)).Reset(context.Background(), "", trade)
	failed(t, err, weir.ErrPermissionDenied)
	other, _ := weirtest.Certificate(t, "other")
	_, err = connect(t, server.Grpc, weir.WithTLS(weir.TLS{CA: other})).Check(context.Background(), trade, weir.Deadline(time.Second))
	failed(t, err, weir.ErrUnavailable)
}

// The caller's outgoing metadata is meant for other services. With a second authorization header the service would reject each call.
func TestTheCallersMetadataIsNotSent(t *testing.T) {
	value, hash := token(t)
	file := filepath.Join(t.TempDir(), "callers.yaml")
	write(t, file, strings.Replace(credentials(hash), "[check]", "[check, reset]", 1))
	server := weirtest.Start(t, weirtest.Limits, "WEIR_AUTH__FILE="+file)
	var methods []string
	intercept := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		equal(t, method+": metadata", len(md), 0)
		methods = append(methods, method[strings.LastIndex(method, "/")+1:])
		return invoke(ctx, method, request, reply, conn, options...)
	}
	client := connect(t, server.Grpc, weir.WithToken(value), weir.WithDialOptions(grpc.WithUnaryInterceptor(intercept)))
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer of-a-user", "x-user", "alex")

	_, err := client.Check(ctx, trade)
	succeeded(t, err)
	equal(t, "guarded", client.Guard(ctx, trade).Decision.Source, weir.Service)
	succeeded(t, client.CheckBatch(ctx, weir.NewRequest(many))[0].Err)
	_, err = client.CheckAll(ctx, weir.NewRequest(many))
	succeeded(t, err)
	reservation, err := client.Reserve(ctx, many, 1, weir.TTL(time.Minute))
	succeeded(t, err)
	_, err = reservation.Extend(ctx, 0)
	succeeded(t, err)
	succeeded(t, reservation.Cancel(ctx))
	slot, err := client.Slot(ctx, weir.Key{"exports", "alex"})
	succeeded(t, err)
	succeeded(t, slot.Release(ctx))
	_, err = client.Reset(ctx, "", trade)
	succeeded(t, err)
	equal(t, "calls", strings.Join(methods, " "), "Check Check CheckBatch CheckAll Reserve Extend Cancel Reserve Commit Reset")

	// Streams, of leases and of coalesced checks, are opened for no caller.
	streams := connect(t, server.Grpc, weir.WithToken(value), weir.WithLease(), weir.WithCoalescing(0))
	for _, source := range []weir.Source{weir.Lease, weir.Service} {
		weirtest.Until(t, source.String(), func() bool {
			decision, err := streams.Check(ctx, weir.Key{"hot", "alex"}, weir.UseLease(source == weir.Lease))
			succeeded(t, err)
			return decision.Source == source
		})
	}
}

// shard is the key of the context value that docs/deploying.md routes calls by.
type shard struct{}

func TestAnInterceptorMayAddMetadata(t *testing.T) {
	// The calls that have arrived, in order: method and header.
	arrived := make(chan string, 10)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		md, _ := metadata.FromIncomingContext(stream.Context())
		arrived <- method[strings.LastIndex(method, "/")+1:] + " " + strings.Join(md.Get("x-weir-key"), ",")
		return status.Error(codes.NotFound, "")
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	succeeded(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	route := weir.WithDialOptions(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
			options ...grpc.CallOption) error {
			if user, ok := ctx.Value(shard{}).(string); ok {
				ctx = metadata.AppendToOutgoingContext(ctx, "x-weir-key", user)
			}
			return invoke(ctx, method, request, reply, conn, options...)
		}))
	client := connect(t, listener.Addr().String(), route)
	alex := context.WithValue(context.Background(), shard{}, "alex")
	_, err = client.Check(alex, trade)
	failed(t, err, weir.ErrNotFound)
	equal(t, "call", <-arrived, "Check alex")
	_, err = client.Reset(alex, "", trade)
	failed(t, err, weir.ErrNotFound)
	equal(t, "call", <-arrived, "Reset alex")
	_, err = client.Check(context.Background(), trade)
	failed(t, err, weir.ErrNotFound)
	equal(t, "call", <-arrived, "Check ")

	// A stream is opened for no caller, so its context has no value of theirs.
	var opened atomic.Bool
	streams := weir.WithDialOptions(grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
			options ...grpc.CallOption) (grpc.ClientStream, error) {
			if ctx.Value(shard{}) != nil {
				t.Error("a value of a caller")
			}
			opened.Store(true)
			return open(metadata.AppendToOutgoingContext(ctx, "x-weir-key", "all"), desc, conn, method, options...)
		}))
	coalesced := connect(t, listener.Addr().String(), streams, weir.WithCoalescing(0))
	equal(t, "call", <-arrived, "CheckStream all")
	_, err = coalesced.Check(alex, trade)
	failed(t, err, weir.ErrNotFound)
	equal(t, "opened", opened.Load(), true)
}

func TestAListVerifiesTheNameOfEachAddress(t *testing.T) {
	cert, key := weirtest.Certificate(t, "weir")
	server := weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__TLS__CERT="+cert, "WEIR_GRPC__TLS__KEY="+key)
	_, port, err := net.SplitHostPort(server.Grpc)
	succeeded(t, err)
	address := "localhost:" + port
	for _, tls := range []struct {
		weir.TLS
		want error
	}{
		{weir.TLS{CA: cert}, weir.ErrUnavailable},
		{weir.TLS{CA: cert, ServerName: "weir"}, nil},
	} {
		client := connect(t, address+","+address, weir.WithTLS(tls.TLS), weir.WithRetries(0))
		if _, err := client.Check(context.Background(), trade); !errors.Is(err, tls.want) {
			t.Errorf("%+v: %v", tls.TLS, err)
		}
	}
}

func TestAListOfIPv6Addresses(t *testing.T) {
	if listener, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6")
	} else {
		listener.Close()
	}
	cert, key := weirtest.Certificate(t, "weir")
	listen := "WEIR_GRPC__LISTEN=[::1]:0"
	plain := weirtest.Start(t, weirtest.Limits, listen).Grpc
	check(t, connect(t, plain+","+plain), trade)
	encrypted := weirtest.Start(t, weirtest.Limits, listen, "WEIR_GRPC__TLS__CERT="+cert, "WEIR_GRPC__TLS__KEY="+key).Grpc
	check(t, connect(t, encrypted+","+encrypted, weir.WithTLS(weir.TLS{CA: cert})), trade)
}

func TestMutualTLS(t *testing.T) {
	cert, key := weirtest.Certificate(t, "weir")
	ours, oursKey := weirtest.Certificate(t, "shop")
	theirs, theirsKey := weirtest.Certificate(t, "guessed")
	server := weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__TLS__CERT="+cert, "WEIR_GRPC__TLS__KEY="+key, "WEIR_GRPC__TLS__CLIENT_CA="+ours)

	files := weir.TLS{CA: cert, Cert: ours, Key: oursKey}
	check(t, connect(t, server.Grpc, weir.WithTLS(files)), trade)
	files.Cert, files.Key = theirs, theirsKey
	_, err := connect(t, server.Grpc, weir.WithTLS(files)).Check(context.Background(), trade, weir.Deadline(time.Second))
	failed(t, err, weir.ErrUnavailable)
}

func TestTokenFileRotates(t *testing.T) {
	first, firstHash := token(t)
	second, secondHash := token(t)
	directory := t.TempDir()
	callers, file := filepath.Join(directory, "callers.yaml"), filepath.Join(directory, "token")
	write(t, callers, credentials(firstHash))
	write(t, file, first+"\n")
	server := weirtest.Start(t, weirtest.Limits, "WEIR_AUTH__FILE="+callers, "WEIR_LIMITS_POLL=10ms")
	client := connect(t, server.Grpc, weir.WithTokenFile(file))
	check(t, client, trade, weir.Cost(0))

	write(t, callers, credentials(secondHash))
	weirtest.Until(t, "the first token is revoked", func() bool {
		_, err := client.Check(context.Background(), trade, weir.Cost(0))
		return err != nil
	})
	// A missing file changes nothing.
	succeeded(t, os.Remove(file))
	_, err := client.Check(context.Background(), trade, weir.Cost(0))
	failed(t, err, weir.ErrUnauthenticated)
	write(t, file, second)
	weirtest.Until(t, "the second token is read", func() bool {
		_, err := client.Check(context.Background(), trade, weir.Cost(0))
		return err == nil
	})
}

func TestATokenFileWithoutATokenLeavesTheLastOne(t *testing.T) {
	value, hash := token(t)
	directory := t.TempDir()
	callers, file := filepath.Join(directory, "callers.yaml"), filepath.Join(directory, "token")
	write(t, callers, credentials(hash))
	write(t, file, value)
	server := weirtest.Start(t, weirtest.Limits, "WEIR_AUTH__FILE="+callers)
	for _, bad := range []string{"", "two\nlines", "t\u00f6k\u00e9n", value + "\xff", strings.Repeat("x", 5000)} {
		write(t, file, value)
		logged := make(chan string, 100)
		client := connect(t, server.Grpc, weir.WithTokenFile(file), weir.WithLogger(slog.New(slog.NewTextHandler(lines(logged), nil))))
		write(t, file, bad)
		weirtest.Until(t, "the file is read again", func() bool {
			check(t, client, trade, weir.Cost(0))
			return len(logged) > 0
		})
		matches(t, "log", <-logged, "(?s).*level=WARN.*the last token is sent.*"+regexp.QuoteMeta(file)+".*")
		if _, err := weir.New(server.Grpc, weir.WithTokenFile(file)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if _, err := weir.New(server.Grpc, weir.WithToken("two\nlines")); err == nil {
		t.Error("a token of two lines: no error")
	}
}

// lines receives the lines of a logger.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	first, firstHash := token(t)
	second, secondHash := token(t)
	directory := t.TempDir()
	callers, file := filepath.Join(directory, "callers.yaml"), filepath.Join(directory, "token")
	write(t, callers, strings.Replace(credentials(firstHash), "}]", "}, { sha256: "+secondHash+" }]", 1))
	write(t, file, first)
	server := weirtest.Start(t, weirtest.Limits, "WEIR_AUTH__FILE="+callers, "WEIR_LIMITS_POLL=10ms")
	var opened, sent atomic.Int64
	count := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption) (grpc.ClientStream, error) {
		opened.Add(1)
		stream, err := open(ctx, desc, conn, method, options...)
		return countedStream{stream, &sent}, err
	}
	client := connect(t, server.Grpc, weir.WithTokenFile(file), weir.WithCoalescing(0), weir.WithRetries(0),
		weir.WithDialOptions(grpc.WithStreamInterceptor(count)))
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := client.Check(context.Background(), trade, weir.Cost(0)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	streams := func() {
		before := sent.Load()
		weirtest.Until(t, "checks over the stream", func() bool { return sent.Load() > before+100 })
	}
	streams()
	write(t, file, second)
	weirtest.Until(t, "another stream", func() bool { return opened.Load() == 2 })
	streams()
	write(t, callers, credentials(secondHash))
	old := connect(t, server.Grpc, weir.WithToken(first))
	weirtest.Until(t, "the first token is revoked", func() bool {
		_, err := old.Check(context.Background(), trade, weir.Cost(0))
		return err != nil
	})
	streams()
	close(stop)
	workers.Wait()
	equal(t, "streams", opened.Load(), 2)
}

// countedStream counts the messages sent.
type countedStream struct {
	grpc.ClientStream
	sent *atomic.Int64
}

func (s countedStream) SendMsg(message any) error {
	s.sent.Add(1)
	return s.ClientStream.SendMsg(message)
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "weir.sock")
	weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__LISTEN=unix:"+socket)
	equal(t, "remaining", check(t, connect(t, "unix:"+socket), trade).Remaining, 2)
}
