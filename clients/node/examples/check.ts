// The first check: may alex trade?
import { Client } from "weir-client";

const weir = new Client(process.env.WEIR_ADDR ?? "127.0.0.1:8081", { deadlineMs: 5_000 });
await weir.ready();
const decision = await weir.check(["user", "alex", "trade"]);
if (decision.allowed) console.log(`allowed, ${decision.remaining} of ${decision.limit} left`);
else console.log(`refused, retry after ${((decision.retryAfterMs ?? 0) / 1_000).toFixed(3)} s`);
weir.close();
