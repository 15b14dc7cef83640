import type { Client, Metadata } from "@grpc/grpc-js";
import { RateLimiterService, type LeaseResponse } from "../generated/weir/v1/weir.js";
import { OrderedStream, StreamRejected } from "../ordered-stream.js";
import type { Credentials } from "../token.js";

const OPTIONS = { errorOf: ({ decision }: LeaseResponse) => decision?.error, stallMs: 0 };
const MAX_IN_FLIGHT = 1_024;

/** The stream of a client's leases: opened by a request where there is none, so again after it has ended. */
export class LeaseStream {
  readonly #channel: Client;
  readonly #credentials: Credentials;
  #stream: OrderedStream<LeaseResponse> | null = null;
  #metadata: Metadata | null = null;

  constructor(channel: Client, credentials: Credentials) {
    this.#channel = channel;
    this.#credentials = credentials;
  }

  /** Too many requests wait for their answers. */
  get isFull(): boolean {
    return this.#stream !== null && this.#stream.inFlight >= MAX_IN_FLIGHT;
  }

  /**
   * `waitForReady`: a stream that it opens waits for a connection; else it fails at once where there is none. It fails with
   * {@link StreamRejected} where the service rejects the stream.
   */
  send(request: Buffer, deadline: number, waitForReady: boolean): Promise<LeaseResponse> {
    if (this.#stream?.isRejected) return Promise.reject(new StreamRejected("the service has just rejected a stream"));
    return this.#open(waitForReady).send(request, deadline);
  }

  /** Ends the stream when what was sent is answered. */
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
    // The token is another one: what was sent with the old one is still answered.
    this.#stream?.end();
    this.#metadata = metadata;
    const own = metadata.clone();
    own.setOptions({ waitForReady });
    this.#stream = new OrderedStream(this.#channel, RateLimiterService.lease, own, OPTIONS);
    return this.#stream;
  }
}
