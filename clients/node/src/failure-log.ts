import type { ErrorCode, WeirError } from "./errors.js";

/** The console, or any logger with these methods. */
export interface Logger {
  warn(message: string): void;
  error(message: string): void;
}

const INTERVAL_MS = 10_000;

interface Kind {
  count: number;
  quietUntilMs: number;
}

/** Logs failures that no caller sees, each error code at most once in ten seconds. */
export class FailureLog {
  readonly #logger: Logger;
  readonly #kinds = new Map<ErrorCode, Kind>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  report({ code, message, isOutage }: WeirError): void {
    const kind = this.#kinds.get(code) ?? { count: 0, quietUntilMs: 0 };
    this.#kinds.set(code, kind);
    kind.count += 1;
    const nowMs = performance.now();
    if (nowMs < kind.quietUntilMs) return;
    kind.quietUntilMs = nowMs + INTERVAL_MS;
    const what = `${code} (${message}); ${kind.count} checks without a decision so far`;
    if (isOutage || code === "CANCELLED") this.#logger.warn(`no answer from weir: ${what}`);
    else this.#logger.error(`WEIR IS SET UP WRONGLY, NO REQUEST IS CHECKED: ${what}`);
  }
}
