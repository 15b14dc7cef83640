// Package weirgrpc guards grpc-go servers with Weir: refused calls fail with RESOURCE_EXHAUSTED, google.rpc.RetryInfo, and retry-after in
// the trailer. The header has ratelimit and ratelimit-policy.
//
//	key := weirgrpc.Path(weirgrpc.Text("user"), weirgrpc.Metadata("x-user"), weirgrpc.Method())
//	server := grpc.NewServer(grpc.UnaryInterceptor(weirgrpc.UnaryServerInterceptor(client, key)))
package weirgrpc

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	weir "github.com/OWNER/weir/clients/go"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// KeyFunc returns the key under which a call is limited. method is /package.Service/Method. A call with a nil key is not limited.
type KeyFunc func(ctx context.Context, method string) weir.Key

// UnaryServerInterceptor limits unary calls with the client's Guard. It fails open, unless OnFailure(Deny) is set here or for the client:
// then calls fail with UNAVAILABLE if the service does not decide.
func UnaryServerInterceptor(client *weir.Client, key KeyFunc, options ...weir.CheckOption) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		send := func(header, trailer metadata.MD) {
			_ = grpc.SetTrailer(ctx, trailer)
			// It fails if an outer interceptor has sent the header already.
			_ = grpc.SetHeader(ctx, header)
		}
		if err := guard(ctx, client, key(ctx, info.FullMethod), options, send); err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}
}

// StreamServerInterceptor limits the opening of streams, as UnaryServerInterceptor limits calls.
func StreamServerInterceptor(client *weir.Client, key KeyFunc, options ...weir.CheckOption) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := stream.Context()
		send := func(header, trailer metadata.MD) {
			stream.SetTrailer(trailer)
			_ = stream.SetHeader(header)
		}
		if err := guard(ctx, client, key(ctx, info.FullMethod), options, send); err != nil {
			return err
		}
		return handler(server, stream)
	}
}

func guard(ctx context.Context, client *weir.Client, key weir.Key, options []weir.CheckOption, send func(header, trailer metadata.MD)) error {
	if key == nil {
		return nil
	}
	verdict := client.Guard(ctx, key, options...)
	header, trailer := metadata.MD{}, metadata.MD{}
	for name, values := range verdict.Header {
		switch name = strings.ToLower(name); name {
		case "retry-after":
			trailer[name] = values
		case "ratelimit", "ratelimit-policy":
			header[name] = values
		}
	}
	send(header, trailer)
	switch {
	case verdict.Pass:
		return nil
	case verdict.Decision.Allowed:
		// The call ended while it waited.
		return status.FromContextError(ctx.Err()).Err()
	default:
		return refusal(verdict)
	}
}

func refusal(verdict weir.Verdict) error {
	code, message := codes.ResourceExhausted, "rate limit exceeded"
	if verdict.Status == http.StatusServiceUnavailable {
		code, message = codes.Unavailable, "no decision of the rate limiter"
	}
	refused := status.New(code, message)
	if after, err := strconv.ParseInt(verdict.Header.Get("Retry-After"), 10, 64); err == nil {
		if detailed, err := refused.WithDetails(&errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: after}}); err == nil {
			refused = detailed
		}
	}
	return refused.Err()
}

// Segment returns one segment of a key. An empty segment becomes "-".
type Segment func(ctx context.Context, method string) string

// Path builds the key from segments, root first.
func Path(segments ...Segment) KeyFunc {
	return func(ctx context.Context, method string) weir.Key {
		key := make(weir.Key, len(segments))
		for i, segment := range segments {
			key[i] = segment(ctx, method)
		}
		return key
	}
}

// Text is a constant segment.
func Text(text string) Segment {
	return func(context.Context, string) string { return text }
}

// Metadata is a value of the call's metadata. Take the user from authentication, not from metadata that the client sets.
func Metadata(name string) Segment {
	return func(ctx context.Context, _ string) string {
		return strings.Join(metadata.ValueFromIncomingContext(ctx, name), ",")
	}
}

// Principal is the first DNS name, or else the first URI, of the verified client certificate (mTLS).
func Principal() Segment {
	return func(ctx context.Context, _ string) string {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return ""
		}
		info, ok := p.AuthInfo.(credentials.TLSInfo)
		if !ok || len(info.State.VerifiedChains) == 0 {
			return ""
		}
		certificate := info.State.VerifiedChains[0][0]
		switch {
		case len(certificate.DNSNames) > 0:
			return certificate.DNSNames[0]
		case len(certificate.URIs) > 0:
			return certificate.URIs[0].String()
		default:
			return ""
		}
	}
}

// Method is the called method, as in package.Service/Method.
func Method() Segment {
	return func(_ context.Context, method string) string { return strings.TrimPrefix(method, "/") }
}

// PeerIP is the IP address of the peer; behind a proxy, the proxy's.
func PeerIP() Segment {
	return func(ctx context.Context, _ string) string {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return ""
		}
		host, _, err := net.SplitHostPort(p.Addr.String())
		if err != nil {
			return p.Addr.String()
		}
		return host
	}
}
