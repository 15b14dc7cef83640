import type { Client, Metadata } from "@grpc/grpc-js";
import { RateLimiterService, type LeaseResponse } from "../generated/weir/v1/weir.js";
import { OrderedStream, StreamRejected } from "../ordered-stream.js";
import type { Credentials } from "../token.js";

const OPTIONS = { errorOf: ({ decision }: LeaseResponse) => decision?.error, stallMs: 0 };
const MAX_IN_FLIGHT = 1_024;

/** The stream of a client's leases. A request opens it if there is none, and so again after it has ended. */
export class LeaseStream {
  readonly #channel: Client;
  readonly #credentials: Credentials;
  #stream: OrderedStream<LeaseResponse> | null = null;
  #metadata: Metadata | null = null;

  constructor(channel: Client, credentials: Credentials) {
    this.#channel = channel;
    this.#credentials = credentials;
  }

  /** Whether too many requests are in flight. */
  get isFull(): boolean {
    return this.#stream !== null && this.#stream.inFlight >= MAX_IN_FLIGHT;
  }

  /**
   * Sends a request. With `waitForReady` a stream that it opens waits for a connection, else it fails immediately without one.
   * Fails with {@link StreamRejected} if the service rejects the stream.
   */
  send(request: Buffer, deadline: number, waitForReady: boolean): Promise<LeaseResponse> {
    if (this.#stream?.isRejected) return Promise.reject(new StreamRejected("the service has just rejected a stream"));
    return this.#open(waitForReady).send(request, deadline);
  }

  /** Ends the stream after the requests in flight are answered. */
  end(): void {
    this.#stream?.end();
    this.#stream = null;
  }

  cancel(): void {
    this.#stream?.cancel();
    this.#stream = null;
  }

  #open(waitForReady: boolean): OrderedStream<LeaseResponse> {
    const metadata = this.#credentials.metadata();
    if (this.#stream?.isOpen && this.#metadata === metadata) return this.#stream;
    // The token has changed. Requests in flight with the old one are still answered.
    this.#stream?.end();
    this.#metadata = metadata;
    const own = metadata.clone();
    own.setOptions({ waitForReady });
    this.#stream = new OrderedStream(this.#channel, RateLimiterService.lease, own, OPTIONS);
    return this.#stream;
  }
}
