import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";

/** The test that registers a cleanup. */
export type Scope = Pick<TestContext, "after">;

const cleanups = new WeakMap<Scope, (() => unknown)[]>();

/** Registers a cleanup for the end of the test. Cleanups run last one first, so that clients end before their services. */
export function atEnd(t: Scope, cleanup: () => unknown): void {
  const stack = cleanups.get(t);
  if (stack) return void stack.push(cleanup);
  const started = [cleanup];
  cleanups.set(t, started);
  t.after(async () => {
    for (const next of started.reverse()) await next();
  });
}

/** Creates a directory for this test. */
export function scratch(t: Scope): string {
  const directory = mkdtempSync(join(tmpdir(), "weir-client-"));
  atEnd(t, () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** A server process. */
export class Server {
  readonly #child: ChildProcess;
  readonly #lines: readonly string[];

  private constructor(child: ChildProcess, lines: readonly string[]) {
    this.#child = child;
    this.#lines = lines;
  }

  /** Waits for a line of the output. */
  async line(isIt: (line: string) => boolean): Promise<string> {
    for (;;) {
      const found = this.#lines.find(isIt);
      if (found !== undefined) return found;
      await new Promise(setImmediate);
    }
  }

  /** Starts a program, and resolves with the value that `isServing` finds in a line of its output. */
  static async start<Found>(
    [command, ...rest]: readonly [string, ...string[]],
    env: NodeJS.ProcessEnv,
    isServing: (line: string) => Found | undefined,
  ): Promise<[Server, Found]> {
    // Without the WEIR_… settings of the environment.
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

  /** SIGSTOP: the process does not answer, but its connections stay. Resolves when all its threads have stopped (Linux). */
  async freeze(): Promise<void> {
    this.#child.kill("SIGSTOP");
    const tasks = `/proc/${this.#child.pid}/task`;
    const isRunning = (task: string): boolean => !/\) [Tt] /.test(readFileSync(`${tasks}/${task}/stat`, "utf8"));
    while (readdirSync(tasks).some(isRunning)) await new Promise(setImmediate);
  }

  thaw(): void {
    this.#child.kill("SIGCONT");
  }

  /** Stops the process, by default gracefully. */
  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, "exit");
    this.thaw();
    this.#child.kill(signal);
    const [code] = await exit;
    if (signal === "SIGTERM" && code !== 0) throw new Error(`not ended gracefully, with ${code}:\n${this.#lines.join("\n")}`);
  }
}
