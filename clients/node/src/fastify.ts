/** A plugin and a hook for Fastify. */
import type { FastifyPluginAsync, FastifyRequest, onRequestAsyncHookHandler } from "fastify";
import type { Client } from "./client.js";
import type { GuardOptions } from "./guard.js";
import { methodOf, type KeyOf } from "./keys.js";

export { byAddress, byHeader, byPrincipal, type KeyOf } from "./keys.js";

/**
 * Checks each request of a route, as its `onRequest` hook: refused requests are answered with 429, and all responses get rate-limit
 * headers.
 */
export function rateLimit(
  client: Pick<Client, "guard">,
  key: KeyOf<FastifyRequest>,
  options: GuardOptions = {},
): onRequestAsyncHookHandler {
  return async (request, reply) => {
    const verdict = await client.guard(key(request), options);
    reply.headers(verdict.headers);
    if (!verdict.pass) return reply.code(verdict.status).send(verdict.body);
  };
}

export interface RateLimitPluginOptions extends GuardOptions {
  client: Pick<Client, "guard">;
  key: KeyOf<FastifyRequest>;
}

const plugin: FastifyPluginAsync<RateLimitPluginOptions> = async (fastify, { client, key, ...options }) => {
  fastify.addHook("onRequest", rateLimit(client, key, options));
};

/** Checks each request of an application, or of the part of it that registers this plugin. */
export const rateLimitPlugin = Object.assign(plugin, {
  // As fastify-plugin does: the hook applies to the instance that registers the plugin, not only to the plugin's own routes.
  [Symbol.for("skip-override")]: true,
  [Symbol.for("plugin-meta")]: { name: "weir-client", fastify: "5.x" },
});

/** The key, and below it the route: `["user", "alex", "GET /trades/:id"]`. */
export function byRoute(key: KeyOf<FastifyRequest>): KeyOf<FastifyRequest> {
  return (request) => [...key(request), `${methodOf(request)} ${request.routeOptions.url ?? ""}`];
}
