/** Middleware for Express, Connect and node:http. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Client } from "./client.js";
import type { GuardOptions } from "./guard.js";
import { methodOf, type KeyOf } from "./keys.js";

export { byAddress, byHeader, byPrincipal, type KeyOf } from "./keys.js";

export type Middleware<Request> = (request: Request, response: ServerResponse, next: (error?: unknown) => void) => Promise<void>;

/** Checks each request: refused requests are answered with 429, and all responses get rate-limit headers. */
export function rateLimit<Request extends IncomingMessage>(
  client: Pick<Client, "guard">,
  key: KeyOf<Request>,
  options: GuardOptions = {},
): Middleware<Request> {
  return async (request, response, next) => {
    try {
      const verdict = await client.guard(key(request), options);
      for (const [name, value] of Object.entries(verdict.headers)) response.setHeader(name, value);
      if (verdict.pass) next();
      else response.writeHead(verdict.status).end(verdict.body);
    } catch (error) {
      next(error);
    }
  };
}

/**
 * The key, and below it the route: `["user", "alex", "GET /trades/:id"]`. Only for the middleware of a route: any other does not
 * know the route yet.
 *
 * Express does not keep the pattern of the path at which a router is mounted, and that path has many spellings. So it is not in the
 * key: put `prefix` before the route, to distinguish routers with the same routes.
 */
export function byRoute<Request extends Routed>(key: KeyOf<Request>, prefix = ""): KeyOf<Request> {
  return (request) => [...key(request), `${methodOf(request)} ${prefix}${request.route?.path ?? ""}`];
}

interface Routed {
  method?: string | undefined;
  route?: { path: string };
}
