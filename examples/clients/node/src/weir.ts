// Sends checks to Weir, with a deadline, over one connection for the whole process.
import { readFileSync } from "node:fs";
import { credentials, loadPackageDefinition, Metadata, status, type ServiceError } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { ProtoGrpcType } from "./weir/weir.js";
import type { CheckResponse__Output } from "./weir/weir/v1/CheckResponse.js";

export type Answer = CheckResponse__Output;

// A decision takes less than a millisecond: one that is this late means trouble, and the user has waited long enough.
const DEADLINE_MS = Number(process.env.WEIR_DEADLINE_MS ?? 50);
const LOG_EVERY_MS = 10_000;
// 256 UTF-16 units are at most 768 bytes, and Weir takes 1,024: what a user sends must not make a check invalid.
const MAX_SEGMENT_LENGTH = 256;

const OPTIONS = {
  // Every replica behind a DNS name (a headless service in Kubernetes) gets its share.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  // A check is not idempotent: sent twice, it may be charged twice. So retries are off, in this code and in DNS records.
  "grpc.enable_retries": 0,
  "grpc.service_config_disable_resolution": 1,
  // A dead connection is noticed without a request, and an idle one is kept.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.keepalive_permit_without_calls": 1,
  // The default grows to two minutes, for which nothing would be guarded after an outage.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1_000,
};

// These pass by themselves. All others mean that something is set up wrongly.
const OUTAGES = [status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.RESOURCE_EXHAUSTED, status.INTERNAL];

const file = new URL("../../../../proto/weir/v1/weir.proto", import.meta.url).pathname;
const definition = loadSync(file, { longs: Number, defaults: true, oneofs: true });
const { weir } = loadPackageDefinition(definition) as unknown as ProtoGrpcType;

export class Weir {
  // For your metrics: checks without a decision, by the reason.
  readonly undecided = new Map<status, number>();
  readonly #quietUntil = new Map<status, number>();
  readonly #metadata = new Metadata();
  readonly #client;

  constructor({ WEIR_ADDR = "127.0.0.1:8081", WEIR_TOKEN, WEIR_TLS_CA } = process.env) {
    const channel = WEIR_TLS_CA ? credentials.createSsl(readFileSync(WEIR_TLS_CA)) : credentials.createInsecure();
    this.#client = new weir.v1.RateLimiter(WEIR_ADDR, channel, OPTIONS);
    if (WEIR_TOKEN) this.#metadata.set("authorization", `Bearer ${WEIR_TOKEN}`);
    // Connects now, so that the first request need not wait for it.
    this.#client.getChannel().getConnectivityState(true);
  }

  /** The decision on a key, or undefined where there is none. It never rejects. */
  check(...key: string[]): Promise<Answer | undefined> {
    // A limit that shapes traffic refuses instead of answering with a wait: this client does not delay requests.
    const request = { key: key.map(bounded), maxWait: { seconds: 0, nanos: 0 } };
    return new Promise((resolve) => {
      this.#client.Check(request, this.#metadata, { deadline: Date.now() + DEADLINE_MS }, (error, answer) => {
        if (error) this.#tell(error);
        resolve(answer);
      });
    });
  }

  #tell({ code, details }: ServiceError): void {
    const soFar = (this.undecided.get(code) ?? 0) + 1;
    this.undecided.set(code, soFar);
    if (Date.now() < (this.#quietUntil.get(code) ?? 0)) return;
    this.#quietUntil.set(code, Date.now() + LOG_EVERY_MS);
    const why = `${status[code]} (${details}); ${soFar} checks without a decision so far`;
    if (OUTAGES.includes(code)) console.warn(`no answer from weir: ${why}`);
    else console.error(`WEIR IS SET UP WRONGLY, NOTHING IS LIMITED: ${why}`);
  }
}

function bounded(segment: string): string {
  return segment.slice(0, MAX_SEGMENT_LENGTH).toWellFormed() || "-";
}
