import { readFileSync } from "node:fs";
import { credentials, Client, type ChannelCredentials, type ChannelOptions } from "@grpc/grpc-js";

/** Paths of PEM files. `ca`: CA certificates; default: Node.js's own. `cert` and `key`: the client certificate, for mTLS. */
export interface TlsOptions {
  ca?: string;
  cert?: string;
  key?: string;
}

const OPTIONS: ChannelOptions = {
  // Balance over every address of the target.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  // Only this package retries, since gRPC does not know which calls are idempotent: a service config in DNS adds no retries. gRPC's
  // transparent retries, of calls that no server has seen, stay on.
  "grpc.service_config_disable_resolution": 1,
  // Larger than any answer: a batch of 1,000 checks with 16 levels of the longest names.
  "grpc.max_receive_message_length": 32 << 20,
  // Detect a dead connection without a call, and keep idle connections.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.keepalive_permit_without_calls": 1,
  // gRPC's default backoff grows to two minutes: after an outage nothing would be limited for that long.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1_000,
};

/** Opens the connections to the service. The first one is opened immediately, so that the first call does not wait for it. */
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
