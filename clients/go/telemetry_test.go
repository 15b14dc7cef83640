package weir_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// series returns all series of a reader: counts of checks and of durations, and the gauge.
func series(t testing.TB, reader metric.Reader) map[string]int64 {
	t.Helper()
	var collected metricdata.ResourceMetrics
	succeeded(t, reader.Collect(context.Background(), &collected))
	all := map[string]int64{}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, point := range data.DataPoints {
				all[m.Name+labels(point.Attributes)] = point.Value
			}
		case metricdata.Histogram[float64]:
			for _, point := range data.DataPoints {
				all[m.Name+labels(point.Attributes)] = int64(point.Count)
			}
		case metricdata.Gauge[int64]:
			for _, point := range data.DataPoints {
				all[m.Name+labels(point.Attributes)] = point.Value
			}
		}
	}
	return all
}

func labels(set attribute.Set) string {
	var all []string
	for _, label := range set.ToSlice() {
		all = append(all, fmt.Sprintf("%s=%s", label.Key, label.Value.String()))
	}
	return "{" + strings.Join(all, ",") + "}"
}

func TestMetrics(t *testing.T) {
	reader := metric.NewManualReader()
	provider := weir.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	server, client := started(t, provider, weir.WithBreaker(2, time.Hour))
	other := weirtest.FreeAddress(t)
	connect(t, other, provider)
	for range 4 {
		check(t, client, trade)
	}
	_, err := client.Check(context.Background(), trade, weir.Domain("unknown"))
	failed(t, err, weir.ErrNotFound)
	server.Kill()
	for range 2 {
		check(t, client, trade, weir.OnFailure(weir.Allow), weir.Deadline(20*time.Millisecond))
	}
	got := series(t, reader)
	for name, want := range map[string]int64{
		"weir.client.checks{domain=default,outcome=allowed,source=service}":  3,
		"weir.client.checks{domain=default,outcome=refused,source=service}":  1,
		"weir.client.checks{domain=unknown,outcome=error,source=service}":    1,
		"weir.client.checks{domain=default,outcome=allowed,source=fallback}": 2,
		"weir.client.duration{domain=default}":                               6,
		"weir.client.duration{domain=unknown}":                               1,
		"weir.client.breaker{server.address=" + server.Grpc + "}":            int64(weir.BreakerOpen),
		"weir.client.breaker{server.address=" + other + "}":                  int64(weir.BreakerClosed),
	} {
		equal(t, name, got[name], want)
	}
	equal(t, "series", len(got), 8)
}

func TestBucketsOfDurations(t *testing.T) {
	reader := metric.NewManualReader()
	_, client := started(t, weir.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	check(t, client, trade)
	var collected metricdata.ResourceMetrics
	succeeded(t, reader.Collect(ctx, &collected))
	var bounds []float64
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Histogram[float64]); ok {
			bounds = data.DataPoints[0].Bounds
		}
	}
	// The same in all client packages.
	equal(t, "bounds", fmt.Sprint(bounds), "[0.0001 0.00025 0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1]")
}

func TestMetricsOfGuardsWithoutADecision(t *testing.T) {
	reader := metric.NewManualReader()
	client := connect(t, weirtest.FreeAddress(t), weir.WithDeadline(50*time.Millisecond), weir.WithLogger(slog.New(slog.DiscardHandler)),
		weir.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	for _, mode := range []weir.FailureMode{weir.Allow, weir.Deny, weir.ReturnError} {
		equal(t, "pass", client.Guard(ctx, trade, weir.OnFailure(mode)).Pass, mode != weir.Deny)
	}
	got := series(t, reader)
	equal(t, "errors", got["weir.client.checks{domain=default,outcome=error,source=service}"], 3)
	equal(t, "series", len(got), 3)
}

func TestSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	var sent []string
	intercept := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		sent = append(sent, md.Get("traceparent")...)
		return invoke(ctx, method, request, reply, conn, options...)
	}
	_, client := started(t, weir.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(spans))),
		weir.WithDialOptions(grpc.WithUnaryInterceptor(intercept)))
	check(t, client, trade)
	_, err := client.Check(context.Background(), trade, weir.Domain("unknown"))
	failed(t, err, weir.ErrNotFound)
	var got []string
	for i, span := range spans.Ended() {
		equal(t, "traceparent", sent[i], fmt.Sprintf("00-%v-%v-01", span.SpanContext().TraceID(), span.SpanContext().SpanID()))
		got = append(got, span.Name()+labels(attribute.NewSet(span.Attributes()...))+span.Status().Description)
	}
	equal(t, "spans", strings.Join(got, "\n"),
		"weir.check{weir.allowed=true,weir.domain=default,weir.limit=3,weir.remaining=2,weir.source=service}\n"+
			"weir.check{weir.domain=unknown}not found")
}

func TestMetricsOfSeveralChecks(t *testing.T) {
	reader := metric.NewManualReader()
	_, client := started(t, weir.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	client.CheckBatch(ctx, weir.NewRequest(trade, weir.Cost(3)), weir.NewRequest(trade), weir.NewRequest(trade, weir.Domain("unknown")))
	_, err := client.CheckAll(ctx, weir.NewRequest(many), weir.NewRequest(user))
	succeeded(t, err)
	_, err = client.CheckAll(ctx, weir.NewRequest(weir.Key{}), weir.NewRequest(user))
	failed(t, err, weir.ErrInvalidRequest)
	got := series(t, reader)
	for name, want := range map[string]int64{
		"weir.client.checks{domain=default,outcome=allowed,source=service}": 3,
		"weir.client.checks{domain=default,outcome=refused,source=service}": 1,
		"weir.client.checks{domain=default,outcome=error,source=service}":   2,
		"weir.client.checks{domain=unknown,outcome=error,source=service}":   1,
	} {
		equal(t, name, got[name], want)
	}
}
