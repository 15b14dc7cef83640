import { connectivityState, type Client, type Metadata } from "@grpc/grpc-js";
import { RateLimiterService, type CheckResponse } from "./generated/weir/v1/weir.js";
import { OrderedStream, type StreamOptions } from "./ordered-stream.js";
import type { Credentials } from "./token.js";

export interface CoalesceOptions {
  /** Checks that wait for their answers on the stream; further ones are calls of their own. Default 1,024. */
  maxInFlight?: number;
}

/** Sends concurrent checks over one CheckStream, which costs less than a call for each. */
export class Coalescer {
  readonly #channel: Client;
  readonly #credentials: Credentials;
  readonly #maxInFlight: number;
  readonly #streamOptions: StreamOptions<CheckResponse>;
  #stream: OrderedStream<CheckResponse> | null = null;
  #metadata: Metadata | null = null;

  /** `stallMs`: a stream that has answered nothing for so long when a check misses its deadline is replaced. */
  constructor(channel: Client, credentials: Credentials, stallMs: number, { maxInFlight = 1_024 }: CoalesceOptions = {}) {
    this.#channel = channel;
    this.#credentials = credentials;
    this.#maxInFlight = maxInFlight;
    this.#streamOptions = { errorOf: ({ error }) => error, stallMs, acceptedWithinMs: 1_000 };
  }

  /** The answer over the stream, or null where the check must be a call: the stream is full, or the service has not accepted it. */
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
    // The token is another one: what was sent with the old one is still answered.
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
