"""The errors of calls. A refusal is a decision, not an error."""

from __future__ import annotations

from datetime import timedelta

import grpc
from google.protobuf.message import DecodeError

from weir.client import status_pb2
from weir.v1 import weir_pb2 as pb


class WeirError(Exception):
    """The service did not decide.

    Attributes:
        code: the gRPC status.
        message: one sentence.
        field: the invalid field of the request, where the service names one: `limit_spec.limits[0].gcra.count`.
        retry_after: when to try again, where the service says so (load shedding).
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        field: str | None = None,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.message = message
        self.field = field
        self.retry_after = retry_after

    def __str__(self) -> str:
        where = f" ({self.field})" if self.field else ""
        return f"{self.code.name}: {self.message}{where}"


class Outage(WeirError):
    """An error that passes by itself. These open the circuit breaker, and `on_failure` decides instead."""


class Unavailable(Outage):
    """No replica answers, or the service's store does not and the policy says `error`."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(Outage):
    """No answer within the deadline."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Overloaded(Outage):
    """The service sheds load, and has not decided."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Internal(Outage):
    """A fault within the service or the connection."""

    code = grpc.StatusCode.INTERNAL


class CircuitOpen(Outage):
    """The circuit breaker is open: nothing was sent."""

    code = grpc.StatusCode.UNAVAILABLE


class InvalidRequest(WeirError):
    """The request is invalid; `field` says where."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class Unauthenticated(WeirError):
    """The token or certificate is missing or invalid."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(WeirError):
    """The client's role or the domain's policy forbids it."""

    code = grpc.StatusCode.PERMISSION_DENIED


class NotFound(WeirError):
    """No policy defines the domain; or a reservation is settled, expired or unknown."""

    code = grpc.StatusCode.NOT_FOUND


class FailedPrecondition(WeirError):
    """A limit on the path cannot be reserved, or needs a slot."""

    code = grpc.StatusCode.FAILED_PRECONDITION


_KINDS = {
    kind.code: kind
    for kind in (
        Unavailable,
        DeadlineExceeded,
        Overloaded,
        Internal,
        InvalidRequest,
        Unauthenticated,
        PermissionDenied,
        NotFound,
        FailedPrecondition,
    )
}
_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_DETAILS = "grpc-status-details-bin"


def of_status(
    code: grpc.StatusCode, message: str, *, field: str | None = None, retry_after: timedelta | None = None
) -> WeirError:
    """The error of a gRPC status."""
    kind = _KINDS.get(code, WeirError)
    return kind(message, code=code, field=field, retry_after=retry_after)


def of_entry(error: pb.Error) -> WeirError:
    """The error of one check of a batch."""
    code = _BY_NUMBER.get(error.code, grpc.StatusCode.UNKNOWN)
    return of_status(code, error.message, field=error.field or None)


def of_rpc(error: grpc.RpcError) -> WeirError:
    """The error of a failed call."""
    if not isinstance(error, (grpc.Call, grpc.aio.AioRpcError)):
        return WeirError(str(error))
    field, retry_after = _details(error.trailing_metadata() or ())
    return of_status(error.code(), error.details() or "", field=field, retry_after=retry_after)


def _details(metadata: object) -> tuple[str | None, timedelta | None]:
    pairs = metadata if isinstance(metadata, (tuple, grpc.aio.Metadata)) else ()
    encoded = next((value for key, value in pairs if key == _DETAILS and isinstance(value, bytes)), b"")
    field, retry_after = None, None
    try:
        for detail in status_pb2.Status.FromString(encoded).details:
            if detail.type_url.endswith("/google.rpc.BadRequest"):
                violations = status_pb2.BadRequest.FromString(detail.value).field_violations
                field = next((violation.field for violation in violations), None)
            elif detail.type_url.endswith("/google.rpc.RetryInfo"):
                retry_after = status_pb2.RetryInfo.FromString(detail.value).retry_delay.ToTimedelta()
    except DecodeError:
        pass
    return field, retry_after
