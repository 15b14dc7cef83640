import { readFileSync } from "node:fs";
import { credentials, Client, type ChannelCredentials, type ChannelOptions } from "@grpc/grpc-js";

/** PEM files. Without `ca` the CA certificates of Node.js are trusted; `cert` and `key` are for mutual TLS. */
export interface TlsOptions {
  ca?: string;
  cert?: string;
  key?: string;
}

const OPTIONS: ChannelOptions = {
  // Every address of the target gets its share of the calls.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  // Retries are this package's, since gRPC does not know which calls may be repeated: a service config in DNS adds none. gRPC's
  // transparent retries, of calls that no server has seen, stay on.
  "grpc.service_config_disable_resolution": 1,
  // A dead connection is noticed without a call, and an idle one is kept.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.keepalive_permit_without_calls": 1,
  // gRPC's default grows to two minutes, for which nothing would be limited after an outage.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1_000,
};

/** The connections to the service. The first one is opened at once, so that the first call need not wait for it. */
export function openChannel(target: string, tls: TlsOptions | boolean): Client {
  const channel = new Client(target, channelCredentials(tls), OPTIONS);
  channel.getChannel().getConnectivityState(true);
  return channel;
}

function channelCredentials(tls: TlsOptions | boolean): ChannelCredentials {
  if (tls === false) return credentials.createInsecure();
  const { ca, cert, key } = tls === true ? {} : tls;
  return credentials.createSsl(read(ca), read(key), read(cert));
}

function read(path: string | undefined): Buffer | null {
  return path === undefined ? null : readFileSync(path);
}
