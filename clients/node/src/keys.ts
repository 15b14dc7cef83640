import type { IncomingHttpHeaders } from "node:http";
import type { Key } from "./request.js";

/** Returns the key under which a request is limited. */
export type KeyOf<Request> = (request: Request) => Key;

const ANONYMOUS = "anonymous";

/** `[segment, value of the header]`. Use a header that your gateway sets, never one that the client sets. */
export function byHeader(segment: string, header: string): KeyOf<{ headers: IncomingHttpHeaders }> {
  const name = header.toLowerCase();
  return ({ headers }) => [segment, headers[name]?.toString() ?? ANONYMOUS];
}

/** `[segment, address]`: the `ip` of Express and Fastify, which know trusted proxies, or else the peer's address. */
export function byAddress(segment = "address"): KeyOf<{ ip?: string | undefined; socket: { remoteAddress?: string | undefined } }> {
  return ({ ip, socket }) => [segment, ip ?? socket.remoteAddress ?? ANONYMOUS];
}

/** `[segment, principal]`: the authenticated user. */
export function byPrincipal<Request>(segment: string, principal: (request: Request) => string | undefined): KeyOf<Request> {
  return (request) => [segment, principal(request) ?? ANONYMOUS];
}

/** Returns the method of a route's key. Frameworks answer HEAD by the route of GET, so both share a limit. */
export function methodOf({ method }: { method?: string | undefined }): string {
  return method === "HEAD" ? "GET" : (method ?? "");
}
