"""Connections to the service."""

from __future__ import annotations

import ipaddress
import json
import re
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
    """Files in PEM, which are read when the client is created.

    Attributes:
        ca: the CA certificates (CA bundle) that verify the service. Default: gRPC's own.
        cert: the client certificate, for mTLS, with its intermediate certificates.
        key: the private key of `cert`.
        server_name: the name in the service's certificate, if it differs from the target's host.
    """

    ca: str | PathLike[str] | None = None
    cert: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files."""
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS: cert and key are needed together")
        return grpc.ssl_channel_credentials(*(_read(path) for path in (self.ca, self.key, self.cert)))


def _read(path: str | PathLike[str] | None) -> bytes | None:
    if not path:
        return None
    content = Path(path).read_bytes()
    if not content.strip():
        # gRPC would use its own CA certificates, or no client certificate.
        raise ValueError(f"TLS: {path} is empty")
    return content


def uri(target: Target) -> str:
    """Returns the target in gRPC's syntax."""
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


def options(uri: str, tls: TLS | None) -> Options:
    """Returns the channel options for a target in gRPC's syntax."""
    chosen: Options = [
        # Balance over every replica behind a DNS name.
        ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
        # Only the client retries, since it knows which calls are idempotent. gRPC's transparent retries, of calls that
        # no server has processed, stay on.
        ("grpc.service_config_disable_resolution", 1),
        # Larger than any answer: a batch of 1,000 checks with 16 levels of the longest names.
        ("grpc.max_receive_message_length", 32 << 20),
        # Detect a dead connection without a call, and keep idle connections.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # gRPC's default backoff grows to two minutes: after an outage nothing would be limited for that long.
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Despite its name, the timeout of an attempt to connect.
        ("grpc.min_reconnect_backoff_ms", 2_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # By default gRPC shares connections between the channels of a process, and with them their backoff.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    name = tls.server_name if tls else None
    if name:
        chosen.append(("grpc.ssl_target_name_override", name))
    elif uri.startswith("unix:"):
        # gRPC's default is the path, which is not a host.
        chosen.append(("grpc.default_authority", "localhost"))
    elif "," in uri:
        # gRPC's default is the whole list, which is not a host.
        first = re.sub(r"^ipv[46]:/*", "", uri.split(",", maxsplit=1)[0], flags=re.IGNORECASE)
        chosen.append(("grpc.default_authority", first.strip()))
    return chosen
