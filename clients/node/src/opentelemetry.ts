/** Metrics and traces with OpenTelemetry. */
import {
  context,
  metrics,
  propagation,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type MeterProvider,
  type Span,
  type TracerProvider,
} from "@opentelemetry/api";
import type { BreakerState } from "./breaker.js";
import type { Decision } from "./decision.js";
import { WeirError } from "./errors.js";
import type { Telemetry } from "./telemetry.js";

const NAME = "weir-client";
const BUCKETS_S = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];
const BREAKER: Readonly<Record<BreakerState, number>> = { closed: 0, "half-open": 1, open: 2 };

export interface OpenTelemetryOptions {
  /** Default: the global provider. */
  meterProvider?: MeterProvider;
  /** Default: the global provider. */
  tracerProvider?: TracerProvider;
}

/**
 * For the option `telemetry`: the counter `weir.client.checks`, the histogram `weir.client.duration`, the gauge
 * `weir.client.breaker` (0 closed, 1 half-open, 2 open), and a span for each call that decides, the parent of the service's span.
 * Attributes do not contain keys.
 */
export function openTelemetry({ meterProvider = metrics, tracerProvider = trace }: OpenTelemetryOptions = {}): Telemetry {
  const meter = meterProvider.getMeter(NAME);
  const tracer = tracerProvider.getTracer(NAME);
  const checks = meter.createCounter("weir.client.checks", { description: "Checks, by their outcome.", unit: "{check}" });
  const duration = meter.createHistogram("weir.client.duration", {
    description: "Duration of calls that decide, with their retries.",
    unit: "s",
    advice: { explicitBucketBoundaries: BUCKETS_S },
  });
  const breaker = meter.createObservableGauge("weir.client.breaker", {
    description: "State of the circuit breaker: 0 closed, 1 half-open, 2 open.",
  });
  return {
    begin(operation, domain) {
      const attributes = { domain: nameOf(domain) };
      const span = tracer.startSpan(`weir.${operation}`, { kind: SpanKind.CLIENT, attributes: { "weir.domain": attributes.domain } });
      const headers: Record<string, string> = {};
      propagation.inject(trace.setSpan(context.active(), span), headers);
      const startedMs = performance.now();
      return {
        headers,
        end(results, domains) {
          duration.record((performance.now() - startedMs) / 1_000, attributes);
          for (const [index, result] of results.entries()) {
            checks.add(1, { domain: nameOf(domains[index] ?? domain), ...outcomeOf(result) });
          }
          endSpan(span, results);
        },
      };
    },
    leased(domain, decision) {
      checks.add(1, { domain: nameOf(domain), ...outcomeOf(decision) });
    },
    watchBreaker(target, state) {
      const observe = (result: { observe(value: number, attributes: Attributes): void }) =>
        result.observe(BREAKER[state()], { "server.address": target });
      breaker.addCallback(observe);
      return () => breaker.removeCallback(observe);
    },
  };
}

/** Returns the name of a domain, as in the service's own metrics. */
function nameOf(domain: string): string {
  return domain || "default";
}

function outcomeOf(result: Decision | WeirError): Attributes {
  if (result instanceof WeirError) return { outcome: "error", source: "service" };
  return { outcome: result.allowed ? "allowed" : "refused", source: result.source };
}

function endSpan(span: Span, results: readonly (Decision | WeirError)[]): void {
  const [result] = results;
  if (results.length !== 1) span.setAttribute("weir.checks", results.length);
  // If all checks have the same error, the call has failed.
  if (result instanceof WeirError && results.every((other) => other === result)) {
    span.setAttribute("error.type", result.code);
    // Without the message, which may quote the key.
    span.setStatus({ code: SpanStatusCode.ERROR });
  } else if (results.length === 1 && result && !(result instanceof WeirError)) {
    const { allowed, limit, remaining, source } = result;
    span.setAttributes({ "weir.allowed": allowed, "weir.limit": limit, "weir.remaining": remaining, "weir.source": source });
  }
  span.end();
}
