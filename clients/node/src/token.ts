import { readFileSync, statSync } from "node:fs";
import { Metadata } from "@grpc/grpc-js";
import type { Logger } from "./failure-log.js";

const RECHECK_MS = 1_000;

/** The credentials of calls: a bearer token, or none. */
export interface Credentials {
  /** Returns the metadata of a call: the same object as long as the token is the same. */
  metadata(): Metadata;
}

export function credentialsOf({ token, tokenFile }: { token?: string; tokenFile?: string }, logger: Logger): Credentials {
  if (token !== undefined && tokenFile !== undefined) throw new TypeError("a token or a tokenFile, not both");
  if (tokenFile !== undefined) return new TokenFile(tokenFile, logger);
  const metadata = token === undefined ? new Metadata() : bearer(token);
  return { metadata: () => metadata };
}

/** A bearer token in a file. Calls look for a changed file at most once a second, and read it again then. */
class TokenFile implements Credentials {
  readonly #path: string;
  readonly #logger: Logger;
  #version: string;
  #metadata: Metadata;
  #recheckAtMs: number;
  /** The file had no token when it was last looked at, and this is logged. */
  #isUnusable = false;

  constructor(path: string, logger: Logger) {
    this.#path = path;
    this.#logger = logger;
    this.#version = versionOf(path);
    this.#metadata = bearer(readFileSync(path, "utf8"));
    this.#recheckAtMs = performance.now() + RECHECK_MS;
  }

  metadata(): Metadata {
    const nowMs = performance.now();
    if (nowMs >= this.#recheckAtMs) {
      this.#recheckAtMs = nowMs + RECHECK_MS;
      this.#reload();
    }
    return this.#metadata;
  }

  #reload(): void {
    try {
      const version = versionOf(this.#path);
      if (version !== this.#version) {
        this.#metadata = bearer(readFileSync(this.#path, "utf8"));
        this.#version = version;
      }
      this.#isUnusable = false;
    } catch (error) {
      if (this.#isUnusable) return;
      this.#isUnusable = true;
      const why = error instanceof Error ? error.message : String(error);
      this.#logger.warn(`the token file ${this.#path} cannot be used, the last token stays in use: ${why}`);
    }
  }
}

function versionOf(path: string): string {
  const { ino, size, mtimeNs } = statSync(path, { bigint: true });
  return `${ino}:${size}:${mtimeNs}`;
}

function bearer(token: string): Metadata {
  const trimmed = token.trim();
  // The error of gRPC for any other character quotes the token.
  if (!/^[ -~]+$/.test(trimmed)) throw new TypeError("a token must be printable ASCII, and not empty");
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${trimmed}`);
  return metadata;
}
