"""The methods of `weir.v1.RateLimiter` that the clients call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from weir.v1 import weir_pb2 as pb

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Request, Reply]):
    """A method: unary, except `LEASE`."""

    name: str
    request: type[Request]
    reply: type[Reply]

    @property
    def path(self) -> str:
        """Its path in HTTP/2."""
        return f"/weir.v1.RateLimiter/{self.name}"


CHECK = Method("Check", pb.CheckRequest, pb.CheckResponse)
CHECK_BATCH = Method("CheckBatch", pb.CheckBatchRequest, pb.CheckBatchResponse)
CHECK_ALL = Method("CheckAll", pb.CheckAllRequest, pb.CheckAllResponse)
RESERVE = Method("Reserve", pb.ReserveRequest, pb.ReserveResponse)
COMMIT = Method("Commit", pb.CommitRequest, pb.CommitResponse)
CANCEL = Method("Cancel", pb.CancelRequest, pb.CancelResponse)
EXTEND = Method("Extend", pb.ExtendRequest, pb.ExtendResponse)
RESET = Method("Reset", pb.ResetRequest, pb.ResetResponse)
LEASE = Method("Lease", pb.LeaseRequest, pb.LeaseResponse)
"""Bidirectional streaming."""
