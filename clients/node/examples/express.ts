import express, { type Express } from "express";
import type { Client } from "weir-client";
import { byHeader, rateLimit } from "weir-client/express";

export function shop(weir: Client): Express {
  const app = express();
  // In your service the user is whom the authentication has found (`byPrincipal`), not a header that every client may choose.
  const user = byHeader("user", "x-user");
  const guard = (route: string, failClosed = false) => rateLimit(weir, (request) => [...user(request), route], { failClosed });

  app.get("/health", (_, response) => void response.json({ healthy: true }));
  app.get("/trade", guard("trade"), (_, response) => void response.json({ traded: true }));
  app.get("/login", guard("login", true), (_, response) => void response.json({ welcome: true }));
  app.use(guard("other"));
  return app;
}
