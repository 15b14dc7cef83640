import { connectivityState, type Client, type ClientDuplexStream, type Metadata, type ServiceError } from "@grpc/grpc-js";
import { fromEntry, fromServiceError, WeirError } from "./errors.js";
import { RateLimiterService, type CheckResponse } from "./generated/weir/v1/weir.js";
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
  #stream: CheckStream | null = null;

  constructor(channel: Client, credentials: Credentials, { maxInFlight = 1_024 }: CoalesceOptions = {}) {
    this.#channel = channel;
    this.#credentials = credentials;
    this.#maxInFlight = maxInFlight;
  }

  /** The answer over the stream, or null where the check must be a call: the stream is full, or there is no connection. */
  check(request: Buffer, deadline: number): Promise<CheckResponse> | null {
    const stream = this.#open();
    return stream && stream.inFlight < this.#maxInFlight ? stream.check(request, deadline) : null;
  }

  close(): void {
    this.#stream?.cancel();
  }

  #open(): CheckStream | null {
    const metadata = this.#credentials.metadata();
    if (this.#stream?.isOpen && this.#stream.metadata === metadata) return this.#stream;
    // The token is another one: what was sent with the old one is still answered.
    if (this.#stream?.isOpen) this.#stream.end();
    // A stream that waits for a connection would hold checks beyond their deadlines, and send them afterwards.
    const isReady = this.#channel.getChannel().getConnectivityState(true) === connectivityState.READY;
    this.#stream = isReady ? new CheckStream(this.#channel, metadata) : null;
    return this.#stream;
  }
}

interface Waiting {
  resolve(answer: CheckResponse): void;
  reject(error: WeirError): void;
  timer: NodeJS.Timeout;
}

class CheckStream {
  readonly metadata: Metadata;
  readonly #call: ClientDuplexStream<Buffer, CheckResponse>;
  /** Answers come in the order of the requests, so an entry stays until its answer comes, also when it has timed out. */
  readonly #waiting: Waiting[] = [];
  #isOpen = true;

  constructor(channel: Client, metadata: Metadata) {
    this.metadata = metadata;
    const { path, responseDeserialize } = RateLimiterService.checkStream;
    this.#call = channel.makeBidiStreamRequest(path, (bytes: Buffer) => bytes, responseDeserialize, metadata);
    this.#call.on("data", (answer: CheckResponse) => this.#answered(answer));
    this.#call.on("error", (error: ServiceError) => this.#fail(fromServiceError(error)));
    this.#call.on("end", () => this.#fail(new WeirError("UNAVAILABLE", "the stream of checks ended")));
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get inFlight(): number {
    return this.#waiting.length;
  }

  check(request: Buffer, deadline: number): Promise<CheckResponse> {
    return new Promise((resolve, reject) => {
      const late = () => reject(new WeirError("DEADLINE_EXCEEDED", "no answer on the stream of checks in time"));
      const timer = setTimeout(late, deadline - Date.now());
      this.#waiting.push({ resolve, reject, timer });
      this.#call.write(request);
    });
  }

  /** Takes no further checks; what was sent is still answered. */
  end(): void {
    this.#isOpen = false;
    this.#call.end();
  }

  cancel(): void {
    this.#isOpen = false;
    this.#call.cancel();
  }

  #answered(answer: CheckResponse): void {
    const entry = this.#waiting.shift();
    if (!entry) return;
    clearTimeout(entry.timer);
    if (answer.error) entry.reject(fromEntry(answer.error));
    else entry.resolve(answer);
  }

  #fail(error: WeirError): void {
    this.#isOpen = false;
    for (const { reject, timer } of this.#waiting.splice(0)) {
      clearTimeout(timer);
      reject(error);
    }
  }
}
