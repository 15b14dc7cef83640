import fastify, { type FastifyInstance } from "fastify";
import type { Client } from "weir-client";
import { byHeader, byRoute, rateLimit, rateLimitPlugin } from "weir-client/fastify";

export async function shop(weir: Client): Promise<FastifyInstance> {
  const app = fastify();
  // In your service the user is whom the authentication has found (`byPrincipal`), not a header that every client may choose.
  const user = byHeader("user", "x-user");

  app.get("/health", async () => ({ healthy: true }));
  const login = rateLimit(weir, (request) => [...user(request), "login"], { failClosed: true });
  app.get("/login", { onRequest: login }, async () => ({ welcome: true }));
  await app.register(async (trades) => {
    await trades.register(rateLimitPlugin, { client: weir, key: byRoute(user) });
    trades.get("/trades/:id", async () => ({ traded: true }));
  });
  return app;
}
