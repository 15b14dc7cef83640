import assert from "node:assert/strict";
import { test } from "node:test";
import { propagation, SpanStatusCode } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type DataPoint,
  type Histogram,
} from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { openTelemetry } from "weir-client/opentelemetry";
import { connect, POLICY, startWeir } from "./support/weir.js";

test("metrics and spans", async (t) => {
  const metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: metrics, exportIntervalMillis: 3_600_000 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  const spans = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
  t.after(() => Promise.all([meterProvider.shutdown(), tracerProvider.shutdown()]));
  const points = async (name: string) => {
    metrics.reset();
    await meterProvider.forceFlush();
    const found = metrics.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics));
    return (found.find(({ descriptor }) => descriptor.name === name)?.dataPoints ?? []) as DataPoint<number>[];
  };

  const { address, server } = await startWeir(t, {}, `lease: true${POLICY}`);
  const telemetry = openTelemetry({ meterProvider, tracerProvider });
  const weir = await connect(t, address, { telemetry, breaker: { failures: 1, openMs: 60_000 }, retries: 0 });
  const secret = "alex-secret";
  for (let i = 0; i < 4; i++) await weir.check(["user", secret, "trade"]);
  await assert.rejects(weir.check(["user", secret], { domain: "unknown" }));
  await weir.checkBatch([{ key: ["user", secret] }, { key: [] }]);
  assert.deepEqual((await points("weir.client.breaker")).map(({ value }) => value), [0]);
  let calls = 0;
  let leased = 0;
  while (leased < 3) (await weir.check(["many"], { lease: true })).source === "lease" ? leased++ : calls++;
  await server.stop();
  await weir.check(["user", secret], { onFailure: "allow" });

  const checks = (await points("weir.client.checks")).map(({ value, attributes: { domain, outcome, source } }) => [
    domain,
    outcome,
    source,
    value,
  ]);
  assert.deepEqual(checks, [
    ["default", "allowed", "service", 4 + calls],
    ["default", "refused", "service", 1],
    ["unknown", "error", "service", 1],
    ["default", "error", "service", 1],
    ["default", "allowed", "lease", 3],
    ["default", "allowed", "fallback", 1],
  ]);
  const durations = await points("weir.client.duration");
  assert.deepEqual(durations.map(({ attributes }) => attributes["domain"]), ["default", "unknown"]);
  const [timed] = durations as unknown as DataPoint<Histogram>[];
  // The same in all client packages.
  const bounds = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];
  assert.deepEqual(timed?.value.buckets.boundaries, bounds);
  const breaker = await points("weir.client.breaker");
  assert.deepEqual(breaker.map(({ value, attributes }) => [attributes["server.address"], value]), [[address, 2]]);

  const finished = spans.getFinishedSpans();
  const names = [...Array<string>(5).fill("weir.check"), "weir.check_batch", ...Array<string>(calls + 1).fill("weir.check")];
  assert.deepEqual(finished.map(({ name }) => name), names, "the client makes no call for a leased check");
  const [first] = finished;
  const attributes = { "weir.domain": "default", "weir.allowed": true, "weir.limit": 3, "weir.remaining": 2, "weir.source": "service" };
  assert.deepEqual(first?.attributes, attributes);
  assert.equal(finished[4]?.status.code, SpanStatusCode.ERROR);
  assert.ok(!JSON.stringify(finished.map(({ name, attributes, events, status }) => [name, attributes, events, status])).includes(secret));
});

test("each check of a call is counted, in its own domain", async (t) => {
  const metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: metrics, exportIntervalMillis: 3_600_000 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  const spans = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
  t.after(() => Promise.all([meterProvider.shutdown(), tracerProvider.shutdown()]));
  const { address, server } = await startWeir(t);
  const telemetry = openTelemetry({ meterProvider, tracerProvider });
  const weir = await connect(t, address, { telemetry, breaker: false, retries: 0 });
  const [key, domain] = [["user", "alex"], "unknown"];
  await weir.checkBatch([{ key }, { key, domain }]);
  await server.stop();
  const mixed = [{ key }, { key, domain }, { key }];
  await assert.rejects(weir.checkBatch(mixed));
  await weir.checkBatch(mixed, { onFailure: "deny" });
  await weir.checkAll(Array.from({ length: 5 }, () => ({ key })), { onFailure: "allow" });
  await meterProvider.forceFlush();
  const found = metrics.getMetrics().at(-1)?.scopeMetrics.flatMap((scope) => scope.metrics) ?? [];
  const checks = found.find(({ descriptor }) => descriptor.name === "weir.client.checks")?.dataPoints as DataPoint<number>[];
  assert.deepEqual(
    checks.map(({ value, attributes: { domain, outcome, source } }) => [domain, outcome, source, value]),
    [
      ["default", "allowed", "service", 1],
      ["unknown", "error", "service", 2],
      ["default", "error", "service", 2],
      ["default", "refused", "fallback", 2],
      ["unknown", "refused", "fallback", 1],
      ["default", "allowed", "fallback", 5],
    ],
  );
  const failed = spans.getFinishedSpans().filter(({ status }) => status.code === SpanStatusCode.ERROR);
  assert.deepEqual(failed.map(({ name, attributes }) => [name, attributes["weir.checks"]]), [["weir.check_batch", 3]]);
});

test("the service goes on in the trace of the caller", async (t) => {
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  t.after(() => propagation.disable());
  const spans = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
  t.after(() => tracerProvider.shutdown());
  const { address, server } = await startWeir(t, { WEIR_LOG__LEVEL: "weir::access=debug,info" });
  const weir = await connect(t, address, { telemetry: openTelemetry({ tracerProvider }) });
  await weir.check(["user", "alex"]);
  const traceId = spans.getFinishedSpans()[0]?.spanContext().traceId ?? "";
  await server.line((line) => line.includes('"call":"weir.v1.RateLimiter/Check"') && line.includes(`"trace_id":"${traceId}"`));
});
