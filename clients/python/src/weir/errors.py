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
        code: the gRPC status code.
        message: one sentence.
        field: the invalid field, as in `limit_spec.limits[0].gcra.count`; None if the service names none.
        retry_after: when to retry; None if the service does not say.
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
    """A temporary error. `on_failure` applies only to these errors, and they open the circuit breaker."""


class Unavailable(Outage):
    """The service cannot be reached, shuts down, or cannot decide without its store."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(Outage):
    """The service did not answer in time."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Overloaded(Outage):
    """The service sheds load. `retry_after` says when to retry."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Internal(Outage):
    """An internal error of the service or the connection."""

    code = grpc.StatusCode.INTERNAL


class CircuitOpen(Outage):
    """The call was not sent: the circuit breaker is open after earlier outages."""

    code = grpc.StatusCode.UNAVAILABLE


class InvalidRequest(WeirError):
    """The request is malformed. `field` names the invalid field."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class Unauthenticated(WeirError):
    """The credentials (bearer token or client certificate) are missing or not valid."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(WeirError):
    """The client lacks the role, or the domain's policy forbids the check's own limits."""

    code = grpc.StatusCode.PERMISSION_DENIED


class NotFound(WeirError):
    """No policy defines the domain; or a reservation is unknown, has expired or, for an extension, is settled."""

    code = grpc.StatusCode.NOT_FOUND


class FailedPrecondition(WeirError):
    """A limit on the path cannot be reserved, or can only be reserved."""

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
    """Returns the error of a gRPC status."""
    kind = _KINDS.get(code, WeirError)
    return kind(message, code=code, field=field, retry_after=retry_after)


def of_entry(error: pb.Error) -> WeirError:
    """Returns the error of one check of a batch."""
    code = _BY_NUMBER.get(error.code, grpc.StatusCode.UNKNOWN)
    return of_status(code, error.message, field=error.field or None)


def of_rpc(error: grpc.RpcError) -> WeirError:
    """Returns the error of a failed call."""
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
    except (DecodeError, OverflowError):
        # It may come from a proxy; the status alone is enough.
        pass
    return field, retry_after
