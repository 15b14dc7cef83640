import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";

/** Where a test registers what is to be done at its end. */
export type Scope = Pick<TestContext, "after">;

const cleanups = new WeakMap<Scope, (() => unknown)[]>();

/** At the end of the test, last one first: clients end before their services. */
export function atEnd(t: Scope, cleanup: () => unknown): void {
  const stack = cleanups.get(t);
  if (stack) return void stack.push(cleanup);
  const begun = [cleanup];
  cleanups.set(t, begun);
  t.after(async () => {
    for (const next of begun.reverse()) await next();
  });
}

/** A directory for this test. */
export function scratch(t: Scope): string {
  const directory = mkdtempSync(join(tmpdir(), "weir-client-"));
  atEnd(t, () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** A program that serves. */
export class Server {
  readonly #child: ChildProcess;
  readonly #lines: readonly string[];

  private constructor(child: ChildProcess, lines: readonly string[]) {
    this.#child = child;
    this.#lines = lines;
  }

  /** A line of the output, which may be still to come. */
  async line(isIt: (line: string) => boolean): Promise<string> {
    for (;;) {
      const found = this.#lines.find(isIt);
      if (found !== undefined) return found;
      await new Promise(setImmediate);
    }
  }

  /** Starts a program; resolves with what `isServing` finds in a line of its output. */
  static async start<Found>(
    [command, ...rest]: readonly [string, ...string[]],
    env: NodeJS.ProcessEnv,
    isServing: (line: string) => Found | undefined,
  ): Promise<[Server, Found]> {
    // Settings of the surroundings, WEIR_…, are not this program's.
    const { PATH } = process.env;
    const child = spawn(command, rest, { env: { PATH, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    const lines: string[] = [];
    const found = await new Promise<Found>((resolve, reject) => {
      for (const input of [child.stdout, child.stderr]) {
        createInterface({ input }).on("line", (line) => {
          lines.push(line);
          const what = isServing(line);
          if (what !== undefined) resolve(what);
        });
      }
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`${command} ended with ${code}:\n${lines.join("\n")}`)));
    });
    return [new Server(child, lines), found];
  }

  /** SIGSTOP: the program does not answer, but its connections stay. Resolves when all its threads have stopped (Linux). */
  async freeze(): Promise<void> {
    this.#child.kill("SIGSTOP");
    const tasks = `/proc/${this.#child.pid}/task`;
    const isRunning = (task: string): boolean => !/\) [Tt] /.test(readFileSync(`${tasks}/${task}/stat`, "utf8"));
    while (readdirSync(tasks).some(isRunning)) await new Promise(setImmediate);
  }

  thaw(): void {
    this.#child.kill("SIGCONT");
  }

  /** Ends the program, by default gracefully. */
  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, "exit");
    this.thaw();
    this.#child.kill(signal);
    const [code] = await exit;
    if (signal === "SIGTERM" && code !== 0) throw new Error(`not ended gracefully, with ${code}:\n${this.#lines.join("\n")}`);
  }
}
