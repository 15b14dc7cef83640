// A key that is checked often: a lease decides most of its checks in this process.
import { setImmediate } from "node:timers/promises";
import { Client } from "weir-client";

const weir = new Client(process.env.WEIR_ADDR ?? "127.0.0.1:8081", { lease: true, deadlineMs: 5_000 });
const checks = { service: 0, lease: 0, fallback: 0 };
for (let i = 0; i < 2_000; i++) {
  const { source } = await weir.check(["api", "alex"]);
  checks[source] += 1;
  await setImmediate();
}
console.log(checks.lease > checks.service ? "most are decided here" : "most are decided by the service");
await weir.close();
