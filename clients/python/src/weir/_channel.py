"""How a client connects."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import grpc

Target: TypeAlias = str | Sequence[str]
"""`host:port`, `dns:///name:port`, `unix:PATH`; or several `IP:port`."""

Options: TypeAlias = list[tuple[str, str | int]]


@dataclass(frozen=True, slots=True)
class TLS:
    """Files in PEM, which are read when the client is made.

    Attributes:
        ca: the CA bundle of the service's certificate. Default: the system's.
        cert: the client's certificate (mTLS), with its intermediate certificates.
        key: its private key.
        server_name: the name in the service's certificate, where it is not the host of the target.
    """

    ca: str | PathLike[str] | None = None
    cert: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files."""
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS: cert and key are needed together")
        ca, key, cert = (path and Path(path).read_bytes() for path in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca or None, key or None, cert or None)


def uri(target: Target) -> str:
    """The target as gRPC names it."""
    if isinstance(target, str):
        return target
    if len(target) == 1:
        return target[0]
    try:
        versions = {ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).version for address in target}
        (version,) = versions
    except ValueError:
        raise ValueError(
            f"several targets must be IP:port, all of IPv4 or all of IPv6, not {target!r}; "
            "replicas with names: one DNS name that has all their addresses"
        ) from None
    return f"ipv{version}:{','.join(target)}"


def options(target: Target, tls: TLS | None) -> Options:
    """The settings of a connection."""
    chosen: Options = [
        # Every replica behind a name gets its share.
        ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
        # Retries are the client's, which knows what may be repeated. gRPC's own stay on: of calls that were
        # certainly not processed.
        ("grpc.service_config_disable_resolution", 1),
        # A dead connection is noticed without a call, and an idle one is kept.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # The default grows to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Despite its name, how long an attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", 2_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # gRPC shares connections between channels of a process, and with them their back-off.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    name = tls.server_name if tls else None
    if name:
        chosen.append(("grpc.ssl_target_name_override", name))
    elif not isinstance(target, str):
        # The default is the whole list, which is not a host.
        chosen.append(("grpc.default_authority", target[0]))
    elif target.startswith("unix:"):
        # The default is the path, which is not a host.
        chosen.append(("grpc.default_authority", "localhost"))
    return chosen
