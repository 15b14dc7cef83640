package guard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"weir.example/client/weirv1"
)

const (
	// A decision takes less than a millisecond: one that is this late means trouble, and the user has waited long enough.
	deadlineMs = "50"
	logEvery   = 10 * time.Second
	// Weir takes no more: what a user sends must not make a check invalid.
	maxSegmentBytes = 1024
)

var options = []grpc.DialOption{
	// Every replica behind a DNS name (a headless service in Kubernetes) gets its share.
	grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
	// A check is not idempotent: sent twice, it may be charged twice. So retries are off, in this code and in DNS records.
	grpc.WithDisableRetry(),
	grpc.WithDisableServiceConfig(),
	// A dead connection is noticed without a request, and an idle one is kept.
	grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
	grpc.WithIdleTimeout(0),
	// The default grows to two minutes, for which nothing would be guarded after an outage.
	grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: time.Second,
	}),
}

// Weir is one connection for the whole process.
type Weir struct {
	client   weirv1.RateLimiterClient
	token    string
	deadline time.Duration

	mu sync.Mutex
	// Checks without a decision, by the reason, and until when no more is said of it.
	undecided  map[codes.Code]int
	quietUntil map[codes.Code]time.Time
}

// Connect reads WEIR_ADDR, WEIR_TOKEN, WEIR_TLS_CA and WEIR_DEADLINE_MS. It does not wait for the service.
func Connect() (*Weir, error) {
	transport := insecure.NewCredentials()
	if ca := os.Getenv("WEIR_TLS_CA"); ca != "" {
		var err error
		if transport, err = credentials.NewClientTLSFromFile(ca, ""); err != nil {
			return nil, fmt.Errorf("WEIR_TLS_CA: %w", err)
		}
	}
	deadlineMs, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_DEADLINE_MS"), deadlineMs))
	if err != nil {
		return nil, fmt.Errorf("WEIR_DEADLINE_MS: %w", err)
	}
	address := cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:8081")
	channel, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(transport))...)
	if err != nil {
		return nil, fmt.Errorf("WEIR_ADDR: %w", err)
	}
	// So that the first request need not wait for it.
	channel.Connect()
	return &Weir{
		client:     weirv1.NewRateLimiterClient(channel),
		token:      os.Getenv("WEIR_TOKEN"),
		deadline:   time.Duration(deadlineMs) * time.Millisecond,
		undecided:  map[codes.Code]int{},
		quietUntil: map[codes.Code]time.Time{},
	}, nil
}

// Check is the decision on a key, or nil where there is none.
func (w *Weir) Check(ctx context.Context, key ...string) *weirv1.CheckResponse {
	// Should the user hang up, the check still counts: it is as good as sent.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.deadline)
	defer cancel()
	if w.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.token)
	}
	// A limit that shapes traffic refuses instead of answering with a wait: this client does not delay requests.
	request := &weirv1.CheckRequest{Key: bounded(key), MaxWait: &durationpb.Duration{}}
	answer, err := w.client.Check(ctx, request)
	if err != nil {
		w.tell(status.Convert(err))
		return nil
	}
	return answer
}

// Undecided is for your metrics: how many checks had no decision, by the reason.
func (w *Weir) Undecided(code codes.Code) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.undecided[code]
}

func (w *Weir) tell(fault *status.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	code := fault.Code()
	w.undecided[code]++
	if time.Now().Before(w.quietUntil[code]) {
		return
	}
	w.quietUntil[code] = time.Now().Add(logEvery)
	switch code {
	// These pass by themselves. All others mean that something is set up wrongly.
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal:
		slog.Warn("no answer from weir", "code", code.String(), "error", fault.Message(), "so_far", w.undecided[code])
	default:
		slog.Error("WEIR IS SET UP WRONGLY, NOTHING IS LIMITED", "code", code.String(), "error", fault.Message(), "so_far", w.undecided[code])
	}
}

// bounded is the key without what would be refused: bytes that are no text, empty segments, long ones.
func bounded(key []string) []string {
	for i, segment := range key {
		segment = strings.ToValidUTF8(segment, "?")
		for len(segment) > maxSegmentBytes {
			_, last := utf8.DecodeLastRuneInString(segment)
			segment = segment[:len(segment)-last]
		}
		key[i] = cmp.Or(segment, "-")
	}
	return key
}
