import type { Client, ClientDuplexStream, Metadata, ServiceError } from "@grpc/grpc-js";
import { fromEntry, fromServiceError, WeirError } from "./errors.js";
import type { Error as EntryError } from "./generated/weir/v1/weir.js";

/** A bidirectional method with an answer for each request, in order. */
export interface StreamMethod<Response> {
  readonly path: string;
  responseDeserialize(bytes: Buffer): Response;
}

export interface StreamOptions<Response> {
  /** The error of one request, where its answer has one. */
  errorOf(response: Response): EntryError | undefined;
  /** Ends the stream where a request is not answered in time, so that the next ones go by another stream. */
  endsWhenLate: boolean;
}

interface Waiting<Response> {
  resolve(response: Response): void;
  reject(error: WeirError): void;
  timer: NodeJS.Timeout;
}

/** One such stream, until it ends. */
export class OrderedStream<Response> {
  readonly #call: ClientDuplexStream<Buffer, Response>;
  readonly #options: StreamOptions<Response>;
  /** Answers come in the order of the requests, so an entry stays until its answer comes, also when it has timed out. */
  readonly #waiting: Waiting<Response>[] = [];
  #isOpen = true;

  constructor(channel: Client, method: StreamMethod<Response>, metadata: Metadata, options: StreamOptions<Response>) {
    this.#options = options;
    this.#call = channel.makeBidiStreamRequest(method.path, (bytes: Buffer) => bytes, method.responseDeserialize, metadata);
    this.#call.on("data", (response: Response) => this.#answered(response));
    this.#call.on("error", (error: ServiceError) => this.#fail(fromServiceError(error)));
    this.#call.on("end", () => this.#fail(new WeirError("UNAVAILABLE", "the stream ended")));
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get inFlight(): number {
    return this.#waiting.length;
  }

  send(request: Buffer, deadline: number): Promise<Response> {
    return new Promise((resolve, reject) => {
      const late = () => {
        reject(new WeirError("DEADLINE_EXCEEDED", "no answer on the stream in time"));
        if (this.#options.endsWhenLate) this.#break();
      };
      const timer = setTimeout(late, deadline - Date.now());
      this.#waiting.push({ resolve, reject, timer });
      this.#call.write(request);
    });
  }

  /** Takes no further requests; what was sent is still answered. */
  end(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#call.end();
  }

  cancel(): void {
    this.#isOpen = false;
    this.#call.cancel();
  }

  #answered(response: Response): void {
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

  #fail(error: WeirError): void {
    this.#isOpen = false;
    for (const { reject, timer } of this.#waiting.splice(0)) {
      clearTimeout(timer);
      reject(error);
    }
  }
}
