// Checks one key for SECONDS, or until SIGTERM: leased.js TARGET DOMAIN KEY SECONDS, as in
// leased.js 127.0.0.1:8081,127.0.0.1:8082 "" api/alex 10. Prints, for each allowed check, the microseconds of the wall clock
// before and after it.
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { Client } from "weir-client";

const [target = "127.0.0.1:8081", domain = "", path = "api/alex", seconds = "10"] = process.argv.slice(2);
const key = path.split("/");
const weir = new Client(`ipv4:${target}`, { lease: true, onFailure: "deny" });
let isOver = false;
process.once("SIGTERM", () => (isOver = true));
const endMs = performance.now() + Number(seconds) * 1_000;
while (!isOver && performance.now() < endMs) {
  const beforeUs = Math.floor(wallClockUs());
  try {
    const { allowed } = await weir.check(key, { domain });
    if (allowed) console.log(`${beforeUs} ${Math.ceil(wallClockUs())}`);
    // A loop without I/O would leave the leases no time to be renewed.
    await (allowed ? setImmediate() : sleep(1));
  } catch (error) {
    console.log(`error ${error instanceof Error ? error.message : String(error)}`);
  }
}
await weir.close();

function wallClockUs(): number {
  return (performance.timeOrigin + performance.now()) * 1_000;
}
