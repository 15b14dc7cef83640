// A guarded service: each user has limits, and so has each route of a user.
import type { AddressInfo } from "node:net";
import express, { type Request } from "express";
import { guard } from "./guard.js";
import { Weir } from "./weir.js";

const weir = new Weir();
const app = express();

// Take the user from what your authentication has found, never from a header that anybody may set, as here.
const user = (request: Request) => request.get("x-user") ?? "anonymous";
const open = (route: string) => guard<Request>(weir, (request) => ["user", user(request), route]);
const closed = (route: string) => guard<Request>(weir, (request) => ["user", user(request), route], { failClosed: true });

app.get("/health", (_, response) => void response.json({ healthy: true }));
app.get("/trade", open("trade"), (_, response) => void response.json({ traded: true }));
app.get("/login", closed("login"), (_, response) => void response.json({ welcome: true }));
app.use(open("other"));

const server = app.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", () => {
  console.log(`serving on http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
