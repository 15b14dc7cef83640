import type { Client, ClientDuplexStream, Metadata, ServiceError } from "@grpc/grpc-js";
import { fromEntry, fromServiceError, WeirError } from "./errors.js";
import type { Error as EntryError } from "./generated/weir/v1/weir.js";

/** The pause after the service rejected the stream. */
const REOPEN_AFTER_MS = 1_000;

/** The service has rejected the stream, for instance because of `grpc.max_open_streams`, and carried out none of its requests. */
export class StreamRejected extends Error {
  override readonly name = "StreamRejected";
}

/** A bidirectional streaming method with one answer for each request, in order. */
export interface StreamMethod<Response> {
  readonly path: string;
  responseDeserialize(bytes: Buffer): Response;
}

export interface StreamOptions<Response> {
  /** Returns the error of one request, if its answer has one. */
  errorOf(response: Response): EntryError | undefined;
  /**
   * If a request misses its deadline, a stream without an answer for at least this time ends, and the next requests use another
   * stream. Milliseconds.
   */
  stallMs: number;
  /** A stream that is not accepted in this time ends. Default: never. */
  acceptedWithinMs?: number;
}

interface Waiting<Response> {
  resolve(response: Response): void;
  reject(error: WeirError | StreamRejected): void;
  timer: NodeJS.Timeout;
}

/** One stream of such a method. */
export class OrderedStream<Response> {
  readonly #call: ClientDuplexStream<Buffer, Response>;
  readonly #options: StreamOptions<Response>;
  /** Requests in flight, in the order of their answers. An entry stays until its answer arrives, even if it has timed out. */
  readonly #waiting: Waiting<Response>[] = [];
  #isOpen = true;
  #isAccepted = false;
  #reopenAtMs = -Infinity;
  /** When the last answer arrived, or the first request in flight was sent, by the monotonic clock. */
  #progressAt = 0;

  constructor(channel: Client, method: StreamMethod<Response>, metadata: Metadata, options: StreamOptions<Response>) {
    this.#options = options;
    this.#call = channel.makeBidiStreamRequest(method.path, (bytes: Buffer) => bytes, method.responseDeserialize, metadata);
    // A stream that the service rejects has no headers.
    this.#call.on("metadata", () => (this.#isAccepted = true));
    this.#call.on("data", (response: Response) => this.#answered(response));
    this.#call.on("error", (error: ServiceError) => this.#fail(this.#reason(fromServiceError(error))));
    this.#call.on("end", () => this.#fail(new WeirError("UNAVAILABLE", "the stream ended")));
    if (options.acceptedWithinMs === undefined) return;
    setTimeout(() => !this.#isAccepted && this.#isOpen && this.#break(), options.acceptedWithinMs).unref();
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether the service has accepted the stream, and serves its requests. */
  get isAccepted(): boolean {
    return this.#isAccepted;
  }

  /** Whether the service has rejected the stream, and no other must be opened yet. */
  get isRejected(): boolean {
    return performance.now() < this.#reopenAtMs;
  }

  get inFlight(): number {
    return this.#waiting.length;
  }

  send(request: Buffer, deadline: number): Promise<Response> {
    return new Promise((resolve, reject) => {
      const late = () => {
        if (!this.#waiting.includes(entry)) return;
        reject(new WeirError("DEADLINE_EXCEEDED", "no answer on the stream in time"));
        if (performance.now() - this.#progressAt >= this.#options.stallMs) this.#break();
      };
      // After a pause of this process, timers run before the answers that arrived meanwhile are read.
      const timer = setTimeout(() => setImmediate(late), deadline - Date.now());
      const entry = { resolve, reject, timer };
      if (this.#waiting.length === 0) this.#progressAt = performance.now();
      this.#waiting.push(entry);
      this.#call.write(request);
    });
  }

  /** Takes no further requests; those in flight are still answered. */
  end(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#call.end();
  }

  /** Ends the stream immediately, since the client is closed. */
  cancel(): void {
    this.#fail(new WeirError("CANCELLED", "the client is closed"));
    this.#call.cancel();
  }

  #answered(response: Response): void {
    this.#progressAt = performance.now();
    const entry = this.#waiting.shift();
    if (!entry) return;
    clearTimeout(entry.timer);
    const error = this.#options.errorOf(response);
    if (error) entry.reject(fromEntry(error));
    else entry.resolve(response);
  }

  #break(): void {
    this.#fail(new WeirError("UNAVAILABLE", "the stream does not answer"));
    this.#call.cancel();
  }

  /**
   * Returns the error of the requests in flight. The status of an accepted stream is never the answer to a request: the service
   * ends a stream whose token is not valid any more with UNAUTHENTICATED, while a retry may carry another token.
   */
  #reason(error: WeirError): WeirError | StreamRejected {
    if (error.code === "UNAVAILABLE") return error;
    if (this.#isAccepted) return new WeirError("UNAVAILABLE", `the stream ended: ${error.message}`, { cause: error });
    // Neither accepted nor rejected: the service may accept another stream immediately.
    if (error.code === "CANCELLED") return error;
    this.#reopenAtMs = performance.now() + REOPEN_AFTER_MS;
    return new StreamRejected(error.message, { cause: error });
  }

  #fail(error: WeirError | StreamRejected): void {
    this.#isOpen = false;
    for (const { reject, timer } of this.#waiting.splice(0)) {
      clearTimeout(timer);
      reject(error);
    }
  }
}
