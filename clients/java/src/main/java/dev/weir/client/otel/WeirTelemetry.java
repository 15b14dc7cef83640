package dev.weir.client.otel;

import dev.weir.client.BreakerState;
import dev.weir.client.Check;
import dev.weir.client.CheckResult;
import dev.weir.client.Decision;
import dev.weir.client.Telemetry;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.LongGauge;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * OpenTelemetry metrics and traces of one client. None of them contains the key.
 *
 * <ul>
 *   <li>{@code weir.client.checks}: checks by {@code outcome} (allowed, refused, error), {@code source} (service, lease,
 *       fallback; of an error service) and {@code domain};
 *   <li>{@code weir.client.duration}: seconds from a call to its answer, retries included;
 *   <li>{@code weir.client.breaker}: the state of the circuit breaker: 0 closed, 1 half-open, 2 open; by
 *       {@code server.address}, the client's target;
 *   <li>the span {@code weir.check} for each call with checks.
 * </ul>
 */
public final class WeirTelemetry implements Telemetry {
    private static final String SCOPE = "dev.weir.client";
    private static final List<Double> BUCKETS_S =
            List.of(1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0);
    private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("outcome");
    private static final AttributeKey<String> SOURCE = AttributeKey.stringKey("source");
    private static final AttributeKey<String> ADDRESS = AttributeKey.stringKey("server.address");
    private static final AttributeKey<String> DOMAIN = AttributeKey.stringKey("domain");

    private final Tracer tracer;
    private final LongCounter checks;
    private final DoubleHistogram duration;
    private final LongGauge breaker;
    /** By domain; few domains are leased. */
    private final Map<String, Leased> leased = new ConcurrentHashMap<>();

    private WeirTelemetry(OpenTelemetry openTelemetry) {
        var meter = openTelemetry.getMeter(SCOPE);
        tracer = openTelemetry.getTracer(SCOPE);
        checks = meter.counterBuilder("weir.client.checks")
                .setUnit("{check}")
                .setDescription("Checks by their outcome: allowed, refused, error.")
                .build();
        duration = meter.histogramBuilder("weir.client.duration")
                .setUnit("s")
                .setDescription("Time from a call to its answer, retries included.")
                .setExplicitBucketBoundariesAdvice(BUCKETS_S)
                .build();
        breaker = meter.gaugeBuilder("weir.client.breaker")
                .ofLongs()
                .setDescription("The circuit breaker: 0 closed, 1 half-open, 2 open.")
                .build();
    }

    /**
     * Records to the providers of an OpenTelemetry instance.
     *
     * @param openTelemetry the application's
     * @return for {@link dev.weir.client.WeirClientBuilder#telemetry}
     */
    public static Telemetry create(OpenTelemetry openTelemetry) {
        return new WeirTelemetry(openTelemetry);
    }

    @Override
    public Observation begin(List<Check> started) {
        var startedNs = System.nanoTime();
        // Only the checks of a batch may have several domains.
        var domain = started.isEmpty() ? "default" : domain(started.get(0));
        var span = tracer.spanBuilder("weir.check")
                .setSpanKind(SpanKind.CLIENT)
                .setAttribute("weir.domain", domain)
                .startSpan();
        return results -> {
            var seconds = (System.nanoTime() - startedNs) / (double) TimeUnit.SECONDS.toNanos(1);
            duration.record(seconds, Attributes.of(DOMAIN, domain));
            for (var i = 0; i < results.size(); i++) {
                checks.add(1, attributes(started.get(i), results.get(i)));
            }
            end(span, results);
        };
    }

    /** Counts the check, without a span and a duration. */
    @Override
    public void leased(Check check, Decision decision) {
        var attributes = leased.computeIfAbsent(domain(check), Leased::of);
        checks.add(1, decision.allowed() ? attributes.allowed : attributes.refused);
    }

    /** The attributes of leased checks of one domain. */
    private record Leased(Attributes allowed, Attributes refused) {
        static Leased of(String domain) {
            return new Leased(
                    Attributes.of(OUTCOME, "allowed", SOURCE, "lease", DOMAIN, domain),
                    Attributes.of(OUTCOME, "refused", SOURCE, "lease", DOMAIN, domain));
        }
    }

    private static String domain(Check check) {
        return check.domain().isEmpty() ? "default" : check.domain();
    }

    private static Attributes attributes(Check check, CheckResult result) {
        var domain = domain(check);
        if (result instanceof CheckResult.Decided decided) {
            var decision = decided.decision();
            return Attributes.of(
                    OUTCOME, decision.allowed() ? "allowed" : "refused", SOURCE, source(decision), DOMAIN, domain);
        }
        return Attributes.of(OUTCOME, "error", SOURCE, "service", DOMAIN, domain);
    }

    private static String source(Decision decision) {
        return decision.source().name().toLowerCase(Locale.ROOT);
    }

    private static void end(Span span, List<CheckResult> results) {
        if (results.size() != 1) {
            span.setAttribute("weir.checks", results.size());
        } else if (results.get(0) instanceof CheckResult.Decided decided) {
            var decision = decided.decision();
            span.setAttribute("weir.allowed", decision.allowed());
            span.setAttribute("weir.limit", decision.limit());
            span.setAttribute("weir.remaining", decision.remaining());
            span.setAttribute("weir.source", source(decision));
        } else if (results.get(0) instanceof CheckResult.Failed failed) {
            // Without the message, which may quote the key.
            span.setStatus(StatusCode.ERROR, failed.error().kind().name());
        }
        span.end();
    }

    @Override
    public void breakerChanged(String target, BreakerState state) {
        var value = switch (state) {
            case CLOSED -> 0;
            case HALF_OPEN -> 1;
            case OPEN -> 2;
        };
        breaker.set(value, Attributes.of(ADDRESS, target));
    }
}
