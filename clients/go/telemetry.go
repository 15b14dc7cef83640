package weir

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

const scope = "github.com/OWNER/weir/clients/go"

// telemetry has the client's metrics and spans. None of them contains the key.
type telemetry struct {
	tracer   trace.Tracer
	checks   metric.Int64Counter
	duration metric.Float64Histogram
	breaker  metric.Registration
}

func newTelemetry(config *config, target string, b *breaker) (*telemetry, error) {
	meter := config.meters.Meter(scope)
	t := &telemetry{tracer: config.tracers.Tracer(scope)}
	var err error
	if t.checks, err = meter.Int64Counter("weir.client.checks", metric.WithUnit("{check}"),
		metric.WithDescription("Checks by their outcome: allowed, refused, error.")); err != nil {
		return nil, err
	}
	if t.duration, err = meter.Float64Histogram("weir.client.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from a call to its answer, retries included."),
		metric.WithExplicitBucketBoundaries(1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1)); err != nil {
		return nil, err
	}
	gauge, err := meter.Int64ObservableGauge("weir.client.breaker",
		metric.WithDescription("The circuit breaker: 0 closed, 1 half-open, 2 open."))
	if err != nil {
		return nil, err
	}
	address := metric.WithAttributes(attribute.String("server.address", target))
	t.breaker, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(gauge, int64(b.state()), address)
		return nil
	}, gauge)
	return t, err
}

func (t *telemetry) close() {
	// It fails if the provider is shut down already.
	_ = t.breaker.Unregister()
}

// outgoing returns the context of a call to the service. Its only metadata is the trace context: the caller's outgoing metadata is meant for
// other services, and may have their credentials.
func outgoing(ctx context.Context) context.Context {
	fields := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, fields)
	return metadata.NewOutgoingContext(ctx, metadata.New(fields))
}

// observed is a check in flight.
type observed struct {
	telemetry *telemetry
	ctx       context.Context
	span      trace.Span
	domain    string
	started   time.Time
}

func (t *telemetry) begin(ctx context.Context, domain string) (context.Context, observed) {
	ctx, span := t.tracer.Start(ctx, "weir.check", trace.WithSpanKind(trace.SpanKindClient))
	return ctx, observed{telemetry: t, ctx: ctx, span: span, domain: domain, started: time.Now()}
}

func (o observed) end(decision Decision, err error) {
	t := o.telemetry
	if t.duration.Enabled(o.ctx) {
		t.duration.Record(o.ctx, time.Since(o.started).Seconds(), metric.WithAttributes(domainAttribute(o.domain)))
	}
	t.count(o.ctx, o.domain, decision, err)
	if o.span.IsRecording() {
		o.span.SetAttributes(attribute.String("weir.domain", domainName(o.domain)))
		if err != nil {
			// Without the message, which may quote the key.
			o.span.SetStatus(codes.Error, reason(err))
		} else {
			o.span.SetAttributes(
				attribute.Bool("weir.allowed", decision.Allowed),
				attribute.Int64("weir.limit", int64(decision.Limit)),
				attribute.Int64("weir.remaining", int64(decision.Remaining)),
				attribute.String("weir.source", decision.Source.String()),
			)
		}
	}
	o.span.End()
}

func (t *telemetry) count(ctx context.Context, domain string, decision Decision, err error) {
	if !t.checks.Enabled(ctx) {
		return
	}
	outcome := outcomeName(decision.Allowed)
	if err != nil {
		outcome = "error"
	}
	t.checks.Add(ctx, 1, checkAttributes(outcome, decision.Source, domain))
}

// countLeased counts a check that a lease has decided. It records no span and no duration, which would take longer than the check.
func (t *telemetry) countLeased(ctx context.Context, l *lease, allowed bool) {
	if !t.checks.Enabled(ctx) {
		return
	}
	counted := l.counted.Load()
	if counted == nil {
		counted = &[2][]metric.AddOption{
			{checkAttributes(outcomeName(false), Lease, l.domain)},
			{checkAttributes(outcomeName(true), Lease, l.domain)},
		}
		l.counted.Store(counted)
	}
	options := counted[0]
	if allowed {
		options = counted[1]
	}
	t.checks.Add(ctx, 1, options...)
}

func outcomeName(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "refused"
}

func checkAttributes(outcome string, source Source, domain string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(
		attribute.String("outcome", outcome),
		attribute.String("source", source.String()),
		domainAttribute(domain),
	))
}

func domainAttribute(domain string) attribute.KeyValue {
	return attribute.String("domain", domainName(domain))
}

func domainName(domain string) string {
	return cmp.Or(domain, "default")
}

func reason(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return "error"
	}
	return e.reason()
}
