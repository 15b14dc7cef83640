// The guarded service of the test scenario, set up by environment variables.
import type { AddressInfo } from "node:net";
import { Client } from "weir-client";
import { shop } from "./express.js";

const { WEIR_ADDR = "127.0.0.1:8081", WEIR_DEADLINE_MS = "50", WEIR_TOKEN: token, WEIR_TLS_CA: ca, PORT = "8000" } = process.env;
const weir = new Client(WEIR_ADDR, {
  deadlineMs: Number(WEIR_DEADLINE_MS),
  ...(token && { token }),
  ...(ca && { tls: { ca } }),
});
const server = shop(weir).listen(Number(PORT), "127.0.0.1", () => {
  console.log(`serving on http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
