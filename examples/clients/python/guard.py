"""Guards an ASGI application (FastAPI, Starlette, Django, …): checks each request with Weir, answers refusals
with 429, and returns rate-limit headers. Without a decision requests pass (fail open)."""

import json
import logging
import os
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import grpc
from google.protobuf.duration_pb2 import Duration
from weir.v1 import weir_pb2, weir_pb2_grpc

# Read with the module, so that invalid values fail at start.
ADDRESS = os.environ.get("WEIR_ADDR", "127.0.0.1:8081")
TOKEN = os.environ.get("WEIR_TOKEN")
CA = os.environ.get("WEIR_TLS_CA")
CREDENTIALS = grpc.ssl_channel_credentials(Path(CA).read_bytes()) if CA else None

# A decision takes less than a millisecond: one that is this late means trouble, and the user has waited long enough.
DEADLINE_SECONDS = float(os.environ.get("WEIR_DEADLINE_MS", "50")) / 1000
LOG_EVERY_SECONDS = 10
# 256 characters are at most 1,024 bytes, the most that Weir takes: what a user sends must not make a check invalid.
MAX_SEGMENT_CHARACTERS = 256

CHANNEL_OPTIONS = [
    # Every replica behind a DNS name (a headless service in Kubernetes) gets its share.
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    # A check is not idempotent: sent twice, it may be charged twice. So retries are off, in this code and in DNS records.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # A dead connection is noticed without a request, and an idle one is kept.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # The default grows to two minutes, for which nothing would be guarded after an outage.
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

# These pass by themselves. All others mean that something is set up wrongly.
OUTAGES = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
}

log = logging.getLogger("weir")


class Weir:
    """One connection for the whole process. Made inside the event loop that uses it."""

    def __init__(self):
        self._metadata = [("authorization", f"Bearer {TOKEN}")] if TOKEN else []
        if CREDENTIALS:
            channel = grpc.aio.secure_channel(ADDRESS, CREDENTIALS, CHANNEL_OPTIONS)
        else:
            channel = grpc.aio.insecure_channel(ADDRESS, CHANNEL_OPTIONS)
        # Connects now, so that the first request need not wait for it.
        channel.get_state(try_to_connect=True)
        self._stub = weir_pb2_grpc.RateLimiterStub(channel)
        self._quiet_until = {}
        # For your metrics: checks without a decision, by the reason.
        self.undecided = Counter()

    async def check(self, key):
        """The decision on this key, or None where there is none."""
        key = [segment[:MAX_SEGMENT_CHARACTERS] or "-" for segment in key]
        # A limit that shapes traffic refuses instead of answering with a wait: this client does not delay requests.
        request = weir_pb2.CheckRequest(key=key, max_wait=Duration())
        try:
            return await self._stub.Check(request, timeout=DEADLINE_SECONDS, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            self._tell(error.code(), error.details())
            return None

    def _tell(self, code, details):
        self.undecided[code.name] += 1
        if time.monotonic() < self._quiet_until.get(code, 0):
            return
        self._quiet_until[code] = time.monotonic() + LOG_EVERY_SECONDS
        so_far = f"{self.undecided[code.name]} checks without a decision so far"
        if code in OUTAGES:
            log.warning("no answer from weir at %s: %s (%s); %s", ADDRESS, code.name, details, so_far)
        else:
            log.error("WEIR IS SET UP WRONGLY, NOTHING IS LIMITED: %s (%s); %s", code.name, details, so_far)


class Guard:
    """The middleware. `key(scope)` is what a request counts for, root first, or None where it is not limited.
    `fail_closed` are the keys, by their last segment, that are refused while there is no decision."""

    def __init__(self, app, key, fail_closed=frozenset()):
        self.app, self.key, self.fail_closed = app, key, fail_closed
        self.weir = None

    async def __call__(self, scope, receive, send):
        # The first scope is that of the start of the application.
        self.weir = self.weir or Weir()
        key = self.key(scope) if scope["type"] == "http" else None
        if key is None:
            return await self.app(scope, receive, send)
        answer = await self.weir.check(key)
        if answer is None:
            if key[-1] in self.fail_closed:
                return await refuse(send, 503, "Service Unavailable", [(b"retry-after", b"1")])
            return await self.app(scope, receive, send)
        headers = headers_of(answer)
        if not answer.allowed:
            return await refuse(send, 429, "Too Many Requests", headers)

        async def send_with_headers(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *headers]
            await send(message)

        await self.app(scope, receive, send_with_headers)


async def refuse(send, status, title, headers):
    body = json.dumps({"title": title, "status": status}).encode()
    headers = [*headers, (b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def headers_of(answer):
    """What the limit that binds tells, as draft-ietf-httpapi-ratelimit-headers-11 has it. Nothing where nothing is limited."""
    if not answer.HasField("binding"):
        return []
    level = answer.levels[answer.binding]
    name = structured_string(level.name)
    headers = {"ratelimit-policy": f"{name};q={level.limit}", "ratelimit": f"{name};r={level.remaining}"}
    if level.HasField("retry_after"):
        retry = max(1, whole_seconds(level.retry_after))
        headers["retry-after"] = str(retry)
    if level.HasField("next_after"):
        headers["ratelimit"] += f";t={max(1, whole_seconds(level.next_after))}"
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def whole_seconds(duration):
    """Rounded up: who comes back then is not early."""
    return duration.seconds + (duration.nanos > 0)


def structured_string(text):
    """A string of RFC 9651, which holds printable ASCII alone; the rest is percent-encoded."""
    text = quote(text, safe="".join(map(chr, range(0x20, 0x7F))).replace("%", ""))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
