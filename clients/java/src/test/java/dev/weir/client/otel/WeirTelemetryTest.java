package dev.weir.client.otel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.BreakerState;
import dev.weir.client.Check;
import dev.weir.client.OnFailure;
import dev.weir.client.Source;
import dev.weir.client.Weir;
import dev.weir.client.WeirException;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.nio.file.Path;
import java.time.Duration;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class WeirTelemetryTest {
    private static final Check ALEX = Check.of("user", "alex", "trade");

    @TempDir
    private Path directory;

    private final InMemoryMetricReader metrics = InMemoryMetricReader.create();
    private final InMemorySpanExporter spans = InMemorySpanExporter.create();
    private final OpenTelemetry openTelemetry = OpenTelemetrySdk.builder()
            .setMeterProvider(SdkMeterProvider.builder().registerMetricReader(metrics).build())
            .setTracerProvider(SdkTracerProvider.builder()
                    .addSpanProcessor(SimpleSpanProcessor.create(spans))
                    .build())
            .build();

    private MetricData metric(String name) {
        return metrics.collectAllMetrics().stream().filter(metric -> metric.getName().equals(name)).findAny().orElseThrow();
    }

    private Map<List<String>, Long> checks() {
        return metric("weir.client.checks").getLongSumData().getPoints().stream()
                .collect(Collectors.toMap(
                        point -> point.getAttributes().asMap().values().stream().map(Object::toString).sorted().toList(),
                        point -> point.getValue()));
    }

    /** The states of circuit breakers, by the target. */
    private Map<String, Long> breakers() {
        return metric("weir.client.breaker").getLongGaugeData().getPoints().stream()
                .collect(Collectors.toMap(
                        point -> point.getAttributes().get(AttributeKey.stringKey("server.address")),
                        point -> point.getValue()));
    }

    @Test
    void countsTimesAndTracesChecks() {
        try (var server = Weir.start(directory);
                var weir = server.client().telemetry(WeirTelemetry.create(openTelemetry)).build()) {
            weir.checkBatch(List.of(ALEX, ALEX, ALEX));
            weir.check(ALEX);
            assertThrows(WeirException.class, () -> weir.check(ALEX.withDomain("unknown")));
            assertEquals(
                    Map.of(
                            List.of("allowed", "default", "service"), 3L,
                            List.of("default", "refused", "service"), 1L,
                            List.of("error", "service", "unknown"), 1L),
                    checks());
            var durations = metric("weir.client.duration").getHistogramData().getPoints();
            assertEquals(3, durations.stream().mapToLong(point -> point.getCount()).sum());
            assertEquals(Map.of(server.address(), 0L), breakers());
            // The same in all client packages.
            assertEquals(
                    List.of(1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0),
                    durations.iterator().next().getBoundaries());
        }
        var attributes = spans.getFinishedSpanItems().stream().map(span -> span.getName() + span.getAttributes()).toList();
        assertTrue(attributes.get(0).contains("weir.checks=3"), attributes::toString);
        assertTrue(attributes.get(1).contains("weir.allowed=false"), attributes::toString);
        assertTrue(attributes.get(1).contains("weir.limit=3"), attributes::toString);
        assertTrue(attributes.get(2).contains("weir.domain=unknown"), attributes::toString);
        assertFalse(spans.getFinishedSpanItems().toString().contains("alex"));
        assertFalse(metrics.collectAllMetrics().toString().contains("alex"));
    }

    @Test
    void countsWhatLeasesDecide() {
        try (var server = Weir.start(directory);
                var weir = server.client().lease().telemetry(WeirTelemetry.create(openTelemetry)).build()) {
            var bySource = new EnumMap<Source, Long>(Source.class);
            for (var i = 0; i < 500; i++) {
                bySource.merge(weir.check("hot", "alex").source(), 1L, Long::sum);
            }
            assertEquals(
                    Map.of(
                            List.of("allowed", "default", "service"), bySource.get(Source.SERVICE),
                            List.of("allowed", "default", "lease"), bySource.get(Source.LEASE)),
                    checks());
            assertEquals(bySource.get(Source.SERVICE), spans.getFinishedSpanItems().size());
        }
    }

    @Test
    void tellsOfOutages() {
        try (var server = Weir.start(directory);
                var other = server.client().telemetry(WeirTelemetry.create(openTelemetry)).build();
                var nowhere = Weir.nowhere()
                        .onFailure(OnFailure.ALLOW)
                        .breaker(2, Duration.ofHours(1))
                        .telemetry(WeirTelemetry.create(openTelemetry))
                        .build()) {
            nowhere.check(ALEX);
            nowhere.check(ALEX);
            assertEquals(Map.of(List.of("allowed", "default", "fallback"), 2L), checks());
            assertEquals(Map.of("127.0.0.1:1", 2L, server.address(), 0L), breakers());
            assertEquals(BreakerState.CLOSED, other.breakerState());
        }
    }
}
