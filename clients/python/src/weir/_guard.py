"""The guard of a service: what a decision means for the request that asked for it. Middleware adapts it."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from urllib.parse import quote

from weir import _fork
from weir._decision import Decision
from weir.errors import Outage, WeirError

log = logging.getLogger("weir")

_MAX_SEGMENTS = 32
_MAX_SEGMENT_BYTES = 1024
_LOG_EVERY_SECONDS = 10.0
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_MAX_NAME_CHARACTERS = 256
_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision on a request of a user.

    Attributes:
        status: None if it passes; 429 if it is refused; 503 if it fails closed, without a decision.
        headers: to add to the response, also of a request that passes; names in lower case.
        body: the body of a refusal, of the type `application/problem+json`, which is among the headers.
        decision: the decision; None if there is none.
        error: why there is none.
    """

    status: int | None = None
    headers: Headers = ()
    body: bytes = b""
    decision: Decision | None = None
    error: WeirError | None = None

    @property
    def passes(self) -> bool:
        """Whether the request may go on."""
        return self.status is None

    @property
    def retry_after_seconds(self) -> int | None:
        """`Retry-After`; None if no wait helps."""
        return next((int(value) for name, value in self.headers if name == "retry-after"), None)

    @classmethod
    def of_decision(cls, decision: Decision) -> Verdict:
        """The service has decided."""
        headers = _headers(decision)
        if decision.allowed:
            return cls(headers=headers, decision=decision)
        refusing = [level.name for level in decision.levels if not level.allowed and not level.shadow]
        problem = {"type": _QUOTA_EXCEEDED, "title": "Too Many Requests", "status": 429, "violated-policies": refusing}
        return _refusal(429, problem, headers, decision=decision)

    @classmethod
    def of_error(cls, error: WeirError, *, fail_closed: bool) -> Verdict:
        """The service has not decided."""
        if not fail_closed:
            return cls(error=error)
        problem = {"title": "Service Unavailable", "status": 503}
        return _refusal(503, problem, (("retry-after", "1"),), error=error)


def repair(key: Iterable[str]) -> list[str]:
    """A key that is valid whatever a user sends: a check of an invalid one would fail, and the request pass."""
    segments = [_segment(segment) for segment in key][:_MAX_SEGMENTS]
    return segments or ["-"]


class FailureLog:
    """Logs each kind of failure at most once in ten seconds, and counts all."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = Lock()
        self._count: Counter[str] = Counter()
        self._quiet_until: dict[str, float] = {}
        _fork.register(self)

    def after_fork(self) -> None:
        """In the child: a thread of the parent may hold the lock."""
        self._lock = Lock()

    def failed(self, error: WeirError) -> None:
        """A check without a decision."""
        kind, now = type(error).__name__, time.monotonic()
        with self._lock:
            self._count[kind] += 1
            count = self._count[kind]
            if now < self._quiet_until.get(kind, 0.0):
                return
            self._quiet_until[kind] = now + _LOG_EVERY_SECONDS
        code, so_far = error.code.name, f"{count} checks without a decision so far"
        if isinstance(error, Outage):
            log.warning("no answer from weir at %s: %s (%s); %s", self._target, code, error.message, so_far)
        else:
            log.error("WEIR IS SET UP WRONGLY, NOTHING IS LIMITED: %s (%s); %s", code, error.message, so_far)


def _segment(segment: str) -> str:
    return segment.encode(errors="replace")[:_MAX_SEGMENT_BYTES].decode(errors="ignore") or "-"


def _headers(decision: Decision) -> Headers:
    """The binding limit's, as draft-ietf-httpapi-ratelimit-headers-11 has it. A lease does not know it."""
    level = decision.binding
    if level is None:
        return _retry_after(decision.retry_after)
    name = _structured_string(level.name)
    next_after = f";t={_whole_seconds(level.next_after)}" if level.next_after is not None else ""
    return (
        ("ratelimit-policy", f"{name};q={level.limit}"),
        ("ratelimit", f"{name};r={level.remaining}{next_after}"),
        *_retry_after(level.retry_after),
    )


def _retry_after(time: timedelta | None) -> Headers:
    return () if time is None else (("retry-after", str(_whole_seconds(time))),)


def _refusal(
    status: int,
    problem: dict[str, object],
    headers: Headers,
    *,
    decision: Decision | None = None,
    error: WeirError | None = None,
) -> Verdict:
    body = json.dumps(problem).encode()
    headers = (*headers, ("content-type", "application/problem+json"), ("content-length", str(len(body))))
    return Verdict(status, headers, body, decision, error)


def _whole_seconds(time: timedelta) -> int:
    """Rounded up, so that a client that comes back then is not early."""
    return max(1, math.ceil(time.total_seconds()))


def _structured_string(text: str) -> str:
    """A string of RFC 9651, which holds printable ASCII alone; the rest is percent-encoded."""
    text = quote(text[:_MAX_NAME_CHARACTERS], safe=_PRINTABLE)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
