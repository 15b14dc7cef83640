import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
/** A directory for this test. */
export function scratch(t) {
    const directory = mkdtempSync(join(tmpdir(), "weir-client-"));
    t.after(() => rmSync(directory, { recursive: true, force: true }));
    return directory;
}
/** A program that serves. */
export class Server {
    #child;
    constructor(child) {
        this.#child = child;
    }
    /** Starts a program; resolves with what `isServing` finds in a line of its output. */
    static async start([command, ...rest], env, isServing) {
        // Settings of the surroundings, WEIR_…, are not this program's.
        const { PATH } = process.env;
        const child = spawn(command, rest, { env: { PATH, ...env }, stdio: ["ignore", "pipe", "pipe"] });
        const lines = [];
        const found = await new Promise((resolve, reject) => {
            for (const input of [child.stdout, child.stderr]) {
                createInterface({ input }).on("line", (line) => {
                    lines.push(line);
                    const what = isServing(line);
                    if (what !== undefined)
                        resolve(what);
                });
            }
            child.once("error", reject);
            child.once("exit", (code) => reject(new Error(`${command} ended with ${code}:\n${lines.join("\n")}`)));
        });
        return [new Server(child), found];
    }
    /** SIGSTOP: the program does not answer, but its connections stay. */
    freeze() {
        this.#child.kill("SIGSTOP");
    }
    thaw() {
        this.#child.kill("SIGCONT");
    }
    /** Ends the program, by default gracefully. */
    async stop(signal = "SIGTERM") {
        if (this.#child.exitCode !== null || this.#child.signalCode !== null)
            return;
        const exit = once(this.#child, "exit");
        this.thaw();
        this.#child.kill(signal);
        await exit;
    }
}
