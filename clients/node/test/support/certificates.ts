import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

/** The paths of a certificate and its key, in PEM. */
export interface Pair {
  cert: string;
  key: string;
}

/** A CA that signs certificates into a directory. */
export class Authority {
  readonly ca: string;
  readonly #directory: string;
  readonly #key: string;

  constructor(directory: string, name: string) {
    this.#directory = directory;
    this.ca = join(directory, `${name}.crt`);
    this.#key = join(directory, `${name}.key`);
    openssl("req", "-x509", ...NEW_KEY, "-keyout", this.#key, "-out", this.ca, "-days", "2", "-subj", `/CN=${name}`);
  }

  sign(name: string, subjectAltName: string): Pair {
    const [cert, key, request, extensions] = ["crt", "key", "csr", "ext"].map((kind) => join(this.#directory, `${name}.${kind}`)) as
      [string, string, string, string];
    writeFileSync(extensions, `subjectAltName=${subjectAltName}\n`);
    openssl("req", ...NEW_KEY, "-keyout", key, "-out", request, "-subj", `/CN=${name}`);
    openssl("x509", "-req", "-in", request, "-CA", this.ca, "-CAkey", this.#key, "-CAcreateserial", "-days", "2", "-out", cert,
      "-extfile", extensions);
    return { cert, key };
  }
}

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"] as const;

function openssl(...args: string[]): void {
  execFileSync("openssl", args, { stdio: "pipe" });
}
