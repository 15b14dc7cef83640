import { readFileSync, statSync } from "node:fs";
import { Metadata } from "@grpc/grpc-js";

const RECHECK_MS = 1_000;

/** The credentials of calls: a bearer token, or none. */
export interface Credentials {
  /** Returns the metadata of a call: the same object as long as the token is the same. */
  metadata(): Metadata;
}

export function credentialsOf({ token, tokenFile }: { token?: string; tokenFile?: string }): Credentials {
  if (token !== undefined && tokenFile !== undefined) throw new TypeError("a token or a tokenFile, not both");
  if (tokenFile !== undefined) return new TokenFile(tokenFile);
  const metadata = token === undefined ? new Metadata() : bearer(token);
  return { metadata: () => metadata };
}

/** A bearer token in a file. Calls look for a changed file at most once a second, and read it again then. */
class TokenFile implements Credentials {
  readonly #path: string;
  #version: string;
  #metadata: Metadata;
  #recheckAtMs: number;

  constructor(path: string) {
    this.#path = path;
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
      if (version === this.#version) return;
      this.#metadata = bearer(readFileSync(this.#path, "utf8"));
      this.#version = version;
    } catch {
      // The file may be in the middle of a replacement: the last token is used until the file can be read.
    }
  }
}

function versionOf(path: string): string {
  const { ino, size, mtimeNs } = statSync(path, { bigint: true });
  return `${ino}:${size}:${mtimeNs}`;
}

function bearer(token: string): Metadata {
  const trimmed = token.trim();
  if (!trimmed) throw new TypeError("the token is empty");
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${trimmed}`);
  return metadata;
}
