import { connectivityState, type Client, type Metadata } from "@grpc/grpc-js";
import { RateLimiterService, type CheckResponse } from "./generated/weir/v1/weir.js";
import { OrderedStream, type StreamOptions } from "./ordered-stream.js";
import type { Credentials } from "./token.js";

export interface CoalesceOptions {
  /** The maximum number of checks in flight on the stream; further checks are unary calls. Default 1,024. */
  maxInFlight?: number;
}

/** Sends concurrent checks over one CheckStream, for less CPU than a unary call for each. */
export class Coalescer {
  readonly #channel: Client;
  readonly #credentials: Credentials;
  readonly #maxInFlight: number;
  readonly #streamOptions: StreamOptions<CheckResponse>;
  #stream: OrderedStream<CheckResponse> | null = null;
  #metadata: Metadata | null = null;

  /** `stallMs`: when a check misses its deadline, a stream without an answer for at least this time is replaced. */
  constructor(channel: Client, credentials: Credentials, stallMs: number, { maxInFlight = 1_024 }: CoalesceOptions = {}) {
    this.#channel = channel;
    this.#credentials = credentials;
    this.#maxInFlight = maxInFlight;
    this.#streamOptions = { errorOf: ({ error }) => error, stallMs, acceptedWithinMs: 1_000 };
  }

  /**
   * Sends a check over the stream. Returns null if it must be a unary call: the stream is full, or the service has not accepted it.
   */
  check(request: Buffer, deadline: number): Promise<CheckResponse> | null {
    const stream = this.#open();
    return stream?.isAccepted && stream.inFlight < this.#maxInFlight ? stream.send(request, deadline) : null;
  }

  close(): void {
    this.#stream?.cancel();
  }

  #open(): OrderedStream<CheckResponse> | null {
    const metadata = this.#credentials.metadata();
    if (this.#stream?.isOpen && this.#metadata === metadata) return this.#stream;
    if (this.#stream?.isRejected) return null;
    // The token has changed. Checks in flight with the old one are still answered.
    this.#stream?.end();
    // A stream that waits for a connection would hold checks beyond their deadlines, and send them afterwards.
    const isReady = this.#channel.getChannel().getConnectivityState(true) === connectivityState.READY;
    this.#metadata = metadata;
    this.#stream = isReady
      ? new OrderedStream(this.#channel, RateLimiterService.checkStream, metadata, this.#streamOptions)
      : null;
    return this.#stream;
  }
}
