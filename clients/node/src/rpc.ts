import type { Client, Metadata } from "@grpc/grpc-js";
import type { CircuitBreaker, Outcome } from "./breaker.js";
import { fromServiceError, WeirError } from "./errors.js";
import {
  RateLimiterService,
  type CheckRequest,
  type CheckResponse,
  type LeaseRequest,
  type LeaseResponse,
} from "./generated/weir/v1/weir.js";
import { LeaseStream } from "./lease/stream.js";
import { StreamRejected } from "./ordered-stream.js";
import { isRepeatable } from "./request.js";
import type { Coalescer } from "./stream.js";
import type { Credentials } from "./token.js";

/** A method of the generated service. */
interface Method<Request, Response> {
  readonly path: string;
  requestSerialize(request: Request): Buffer;
  responseDeserialize(bytes: Buffer): Response;
}

export interface CallContext {
  deadlineMs: number;
  /** Metadata to send in addition to the token. */
  headers?: Readonly<Record<string, string>> | undefined;
}

interface CallOptions extends CallContext {
  /** Whether the call is idempotent. */
  isRepeatable: boolean;
  /** Overrides the client's retries. */
  retries?: number;
}

interface Parts {
  channel: Client;
  credentials: Credentials;
  breaker: CircuitBreaker;
  coalescer: Coalescer | null;
  retries: number;
}

/** Timers and gRPC take no arbitrarily long times. */
const MAX_DEADLINE_MS = 86_400_000;

type Attempt<Response> = (request: Buffer, deadline: number, isRetry: boolean) => Promise<Response>;

/** Sends calls, with a deadline, retries and the circuit breaker. */
export class Rpc {
  readonly #parts: Parts;
  readonly #leaseStream: LeaseStream;
  #isClosed = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#leaseStream = new LeaseStream(parts.channel, parts.credentials);
  }

  call<Request, Response>(method: Method<Request, Response>, request: Request, options: CallOptions): Promise<Response> {
    return this.#guarded(method, request, options, (bytes, deadline, isRetry) =>
      this.#unary(method, bytes, deadline, this.#metadata(options.headers, isRetry)),
    );
  }

  /**
   * Sends a check: over the stream if checks are coalesced and the service has accepted it, else as a unary call, and so is a
   * retry.
   */
  check(request: CheckRequest, context: CallContext): Promise<CheckResponse> {
    const method = RateLimiterService.check;
    const options = { ...context, isRepeatable: isRepeatable(request) };
    return this.#guarded(method, request, options, (bytes, deadline, isRetry) => {
      const coalesced = isRetry ? null : this.#parts.coalescer?.check(bytes, deadline);
      return coalesced ?? this.#unary(method, bytes, deadline, this.#metadata(context.headers, isRetry));
    });
  }

  /**
   * Sends a request on the stream of leases. Resolves with null if the service rejects the stream, and has carried out none of its
   * requests. The request is retried once, unchanged: its amounts are totals.
   */
  async lease(request: LeaseRequest, deadlineMs: number): Promise<LeaseResponse | null> {
    const options = { deadlineMs, isRepeatable: true, retries: 1 };
    try {
      return await this.#guarded(RateLimiterService.lease, request, options, (bytes, deadline, isRetry) =>
        this.#leaseStream.send(bytes, deadline, isRetry),
      );
    } catch (error) {
      if (error instanceof StreamRejected) return null;
      throw error;
    }
  }

  /** Whether too many requests are in flight on the stream of leases. */
  get isLeaseStreamFull(): boolean {
    return this.#leaseStream.isFull;
  }

  endLeaseStream(): void {
    this.#leaseStream.end();
  }

  /** Throws if the client is closed. */
  verifyOpen(): void {
    if (this.#isClosed) throw new WeirError("CANCELLED", "the client is closed");
  }

  /** Takes no further calls; calls in flight continue. */
  stop(): void {
    this.#isClosed = true;
  }

  close(): void {
    this.stop();
    this.#leaseStream.cancel();
    this.#parts.coalescer?.close();
    this.#parts.channel.close();
  }

  async #guarded<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    { deadlineMs, isRepeatable, retries = this.#parts.retries }: CallOptions,
    attempt: Attempt<Response>,
  ): Promise<Response> {
    this.verifyOpen();
    const deadline = deadlineAfter(deadlineMs);
    const bytes = encode(method, request);
    // Before the circuit breaker: it says nothing about the service.
    if (deadlineMs <= 0) throw new WeirError("DEADLINE_EXCEEDED", "not sent: the deadline was over before the call");
    const { breaker } = this.#parts;
    const permit = breaker.admit();
    if (!permit) throw new WeirError("CIRCUIT_OPEN", "not sent: the last calls found the service down");
    let outcome: Outcome = "answer";
    try {
      return await withRetries(isRepeatable ? retries : 0, deadline, bytes, attempt);
    } catch (error) {
      outcome = outcomeOf(error);
      // gRPC's own error of an attempt after `close`.
      if (!(error instanceof WeirError || error instanceof StreamRejected)) this.verifyOpen();
      throw error;
    } finally {
      breaker.settle(permit, outcome);
    }
  }

  #unary<Response>(
    { path, responseDeserialize }: Method<never, Response>,
    request: Buffer,
    deadline: number,
    metadata: Metadata,
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      this.#parts.channel.makeUnaryRequest(path, encoded, responseDeserialize, request, metadata, { deadline }, (error, response) => {
        if (response) resolve(response);
        else reject(error ? fromServiceError(error) : new WeirError("INTERNAL", "neither an answer nor an error"));
      });
    });
  }

  /** Returns the metadata of a call: token and headers. A retry waits for a connection; without one a first attempt fails. */
  #metadata(headers: CallContext["headers"], isRetry: boolean): Metadata {
    const shared = this.#parts.credentials.metadata();
    if (!headers && !isRetry) return shared;
    const metadata = shared.clone();
    metadata.setOptions({ waitForReady: isRetry });
    for (const [name, value] of Object.entries(headers ?? {})) metadata.set(name, value);
    return metadata;
  }
}

/** Returns the time of a deadline, by `Date.now`: at most a day from now. */
export function deadlineAfter(ms: number): number {
  const deadline = Date.now() + Math.min(ms, MAX_DEADLINE_MS);
  // gRPC would throw where no caller can catch it.
  if (Number.isNaN(deadline)) throw new WeirError("INVALID_ARGUMENT", `a deadline must be a number, not ${ms}`);
  return deadline;
}

/** Retries after UNAVAILABLE: the connection was lost, or the server shuts down. */
async function withRetries<Response>(
  retries: number,
  deadline: number,
  request: Buffer,
  attempt: Attempt<Response>,
): Promise<Response> {
  let failure: WeirError | undefined;
  for (let attempts = 0; ; attempts++) {
    try {
      return await attempt(request, deadline, attempts > 0);
    } catch (error) {
      if (!(error instanceof WeirError)) throw error;
      // A retry waits for a connection until the deadline, so its DEADLINE_EXCEEDED says less than the error of the attempt before
      // it.
      const isLate = error.code === "DEADLINE_EXCEEDED";
      if (!failure || !isLate) failure = error;
      if (error.code !== "UNAVAILABLE" || attempts === retries || Date.now() >= deadline) throw failure;
    }
  }
}

/** Returns the outcome of a failed call for the circuit breaker: unknown if the call was cancelled or its stream rejected. */
function outcomeOf(error: unknown): Outcome {
  if (!(error instanceof WeirError) || error.code === "CANCELLED") return "unknown";
  return error.isOutage ? "outage" : "answer";
}

/** Encodes a request, before it is sent. Throws a {@link WeirError} if it cannot be encoded. */
export function encode<Request>({ requestSerialize }: Method<Request, unknown>, request: Request): Buffer {
  try {
    return requestSerialize(request);
  } catch (error) {
    // For instance a fraction where the service takes whole units.
    throw new WeirError("INVALID_ARGUMENT", error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/** The request is encoded once, for all attempts. */
function encoded(request: Buffer): Buffer {
  return request;
}
