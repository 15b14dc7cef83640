import type { IncomingHttpHeaders } from "node:http";
import type { Key } from "./request.js";

/** The key of a request. */
export type KeyOf<Request> = (request: Request) => Key;

const ANONYMOUS = "anonymous";

/** `[segment, value of the header]`. Take one that your gateway sets, never one that every client may choose. */
export function byHeader(segment: string, header: string): KeyOf<{ headers: IncomingHttpHeaders }> {
  const name = header.toLowerCase();
  return ({ headers }) => [segment, headers[name]?.toString() ?? ANONYMOUS];
}

/** `[segment, address]`: the `ip` of Express and Fastify, which know trusted proxies, or the peer of the connection. */
export function byAddress(segment = "address"): KeyOf<{ ip?: string | undefined; socket: { remoteAddress?: string | undefined } }> {
  return ({ ip, socket }) => [segment, ip ?? socket.remoteAddress ?? ANONYMOUS];
}

/** `[segment, principal]`: whom the authentication has found. */
export function byPrincipal<Request>(segment: string, principal: (request: Request) => string | undefined): KeyOf<Request> {
  return (request) => [segment, principal(request) ?? ANONYMOUS];
}
