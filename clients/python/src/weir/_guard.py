"""Decides requests of a server; the common part of all middleware."""

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

import grpc

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
    """What a server does with a request.

    Attributes:
        status: None if the request passes; 429 if it is refused; 503 if the service did not decide, and it fails
            closed.
        headers: the headers to add to the response, also if the request passes; names in lower case.
        body: if the request does not pass, a problem document (RFC 9457); its content type is among the headers.
        decision: the decision; None if the service did not decide.
        error: the reason why the service did not decide.
    """

    status: int | None = None
    headers: Headers = ()
    body: bytes = b""
    decision: Decision | None = None
    error: WeirError | None = None

    @property
    def passes(self) -> bool:
        """Whether the request passes."""
        return self.status is None

    @property
    def retry_after_seconds(self) -> int | None:
        """`Retry-After`; None if no wait helps."""
        return next((int(value) for name, value in self.headers if name == "retry-after"), None)

    @classmethod
    def of_decision(cls, decision: Decision) -> Verdict:
        """Returns the verdict of a decision."""
        headers = _headers(decision)
        if decision.allowed:
            return cls(headers=headers, decision=decision)
        refusing = [level.name for level in decision.levels if not level.allowed and not level.shadow]
        problem = {"type": _QUOTA_EXCEEDED, "title": "Too Many Requests", "status": 429, "violated-policies": refusing}
        return _refusal(429, problem, headers, decision=decision)

    @classmethod
    def of_error(cls, error: WeirError, *, fail_closed: bool) -> Verdict:
        """Returns the verdict if the service did not decide."""
        if not fail_closed:
            return cls(error=error)
        problem = {"title": "Service Unavailable", "status": 503}
        return _refusal(503, problem, (("retry-after", "1"),), error=error)


def repair(key: Iterable[str]) -> list[str]:
    """Returns a valid key for any user input: the check of an invalid key would fail, and the request pass."""
    segments = [_segment(segment) for segment in key][:_MAX_SEGMENTS]
    return segments or ["-"]


class FailureLog:
    """Logs failures with their number so far, each kind at most once in ten seconds."""

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
        """Records a check without a decision."""
        kind, now = type(error).__name__, time.monotonic()
        with self._lock:
            self._count[kind] += 1
            count = self._count[kind]
            if now < self._quiet_until.get(kind, 0.0):
                return
            self._quiet_until[kind] = now + _LOG_EVERY_SECONDS
        code, so_far = error.code.name, f"{count} checks without a decision so far"
        if isinstance(error, Outage) or error.code is grpc.StatusCode.CANCELLED:
            log.warning("no answer from weir at %s: %s (%s); %s", self._target, code, error.message, so_far)
        else:
            log.error("WEIR IS SET UP WRONGLY, NO REQUEST IS CHECKED: %s (%s); %s", code, error.message, so_far)


def _segment(segment: str) -> str:
    return segment.encode(errors="replace")[:_MAX_SEGMENT_BYTES].decode(errors="ignore") or "-"


def _headers(decision: Decision) -> Headers:
    """Returns the headers of the binding limit (draft-ietf-httpapi-ratelimit-headers-11), which a lease lacks."""
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
    """Rounds up, to at least 1, so that a client that waits this long is not early."""
    return max(1, math.ceil(time.total_seconds()))


def _structured_string(text: str) -> str:
    """Encodes a string of RFC 9651, which allows only printable ASCII; all else, and %, is percent-encoded."""
    text = quote(text[:_MAX_NAME_CHARACTERS], safe=_PRINTABLE)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
