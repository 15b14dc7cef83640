// Work of which only so much runs at the same time.
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "weir-client";

const weir = new Client(process.env.WEIR_ADDR ?? "127.0.0.1:8081", { deadlineMs: 5_000 });
await weir.ready();
const exports_ = ["exports", "alex"];
await weir.withSlot(exports_, {}, async (slot) => {
  console.log("exporting");
  // The signal aborts if the slot is lost: another may have it then.
  await sleep(10, undefined, { signal: slot.lost });
  const second = await weir.withSlot(exports_, {}, async () => console.log("two at the same time"));
  if (!second.allowed) console.log("another one has to wait");
});
await weir.withSlot(exports_, {}, async () => console.log("exporting again"));
weir.close();
