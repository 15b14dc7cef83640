"""The client for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import grpc

from weir import _methods, errors
from weir._base import ClientBase, closed, domains_of, joint_request, pause_until_ready, removed
from weir._batches import AsyncBatches
from weir._call import Call
from weir._credentials import Metadata
from weir._decision import Decision, JointDecision, OnFailure
from weir._guard import Verdict, repair
from weir._lease.requests import Rejected
from weir._lease.table import ToAsk
from weir._lease.tasks import TaskLeases
from weir._methods import Method, Reply, Request
from weir._request import Check, may_repeat
from weir._reservation import AsyncReservation, OnExpiry, opening, reserve_request
from weir._slot import AsyncSlot
from weir._tasks import may_be_cancelled, to_its_end
from weir._times import Time, deadline_seconds
from weir.errors import WeirError
from weir.limits import Charge, Limit
from weir.v1 import weir_pb2 as pb

Answer = TypeVar("Answer")


class AsyncClient(ClientBase):
    """A client for asyncio: the options and methods of `Client`, as coroutines.

    It connects at its first call, and belongs to the event loop of that call, so it may be created before the loop
    runs.
    """

    _channel: grpc.aio.Channel | None = None
    _channel_closed = False
    _batches: AsyncBatches | None = None

    def _open(self) -> None:
        self._leases: TaskLeases = TaskLeases(self._connected, self._token, self.breaker)
        # They refund the units of reservations whose callers were cancelled.
        self._reserving: set[asyncio.Task[Any]] = set()

    async def check(
        self,
        key: Sequence[str],
        *,
        domain: str = "",
        cost: int = 1,
        limits: Sequence[Limit] | None = None,
        charge: Charge | None = None,
        max_wait: Time = 0,
        factor: float | None = None,
        dry_run: bool = False,
        request_id: str | None = None,
        levels: bool = False,
        deadline: Time | None = None,
        on_failure: OnFailure | None = None,
        lease: bool | None = None,
    ) -> Decision:
        """Decides one key: every limit on its path, in one atomic step. `Check` documents the options.

        Args:
            lease: overrides the client's `lease`.

        Raises:
            WeirError: the service did not decide.
        """
        is_plain = limits is None and factor is None and request_id is None and not max_wait and not dry_run
        leased = self._by_lease(key, domain, cost, lease) if is_plain else None
        if isinstance(leased, Decision):
            return leased
        check = Check(key, domain, cost, limits, charge, max_wait, factor, dry_run, request_id, levels)
        with self._telemetry.observe(domain) as seen:
            try:
                request = self._message(check)
                reply = await self._check(request, deadline, seen.metadata, leased)
                decision = Decision.of_message(reply)
            except WeirError as error:
                decision = self._fallback(error, on_failure)
            seen.decided(decision)
            return decision

    async def check_batch(
        self, checks: Sequence[Check], *, deadline: Time | None = None, on_failure: OnFailure | None = None
    ) -> list[Decision | WeirError]:
        """Decides up to 1,000 checks in order, independently, in one call.

        Returns:
            For each check its decision, or the error why it has none.

        Raises:
            WeirError: the call failed, and none of the checks has a decision.
        """
        messages, invalid = self._messages(checks)
        request = pb.CheckBatchRequest(checks=messages)
        with self._telemetry.observe(*domains_of(checks)) as seen:
            decisions: list[Decision | WeirError] = []
            try:
                if messages or not invalid:
                    repeat = may_repeat(*messages)
                    answer = await self._send(_methods.CHECK_BATCH, request, deadline, repeat, seen.metadata)
                    decisions = self._batch_decisions(answer.results, on_failure)
            except WeirError as error:
                decisions = self._batch_fallback(error, on_failure, len(messages))
            for place, failure in invalid.items():
                decisions.insert(place, failure)
            seen.decided(*decisions)
            return decisions

    async def check_all(
        self, checks: Sequence[Check], *, deadline: Time | None = None, on_failure: OnFailure | None = None
    ) -> JointDecision:
        """Decides 1 to 32 checks of one domain together: either all are charged or none.

        The call takes no `request_id`, so it is retried only if none of the checks charges anything.

        Raises:
            WeirError: the service did not decide.
        """
        with self._telemetry.observe(*domains_of(checks)) as seen:
            try:
                request = joint_request(checks)
                answer = await self._send(
                    _methods.CHECK_ALL, request, deadline, may_repeat(*request.checks), seen.metadata
                )
                decision = self._joint_decision(answer)
            except WeirError as error:
                decision = self._joint_fallback(error, on_failure, len(checks))
            seen.decided(*decision.results)
            return decision

    @opening
    async def reserve(
        self,
        key: Sequence[str],
        cost: int = 1,
        *,
        ttl: Time | None = None,
        on_expiry: OnExpiry = OnExpiry.KEEP,
        domain: str = "",
        limits: Sequence[Limit] | None = None,
        request_id: str | None = None,
        levels: bool = False,
        deadline: Time | None = None,
        on_failure: OnFailure | None = None,
    ) -> AsyncReservation:
        """Decides as `check` does. If the check is allowed, its cost is charged and held until it is settled.

        Args:
            ttl: the time to hold the units, 10 ms to 24 hours: longer than the work takes, unless you `extend` it.
                Required unless a concurrency limit is on the path, whose `ttl` is the default and the maximum.
            on_expiry: the settlement if the reservation expires.

        Raises:
            WeirError: the service did not decide.
        """
        check = Check(key, domain, cost, limits, request_id=request_id, levels=levels)
        with self._telemetry.observe(domain) as seen:
            try:
                request = reserve_request(self._message(check), ttl, on_expiry)
                answer = await self._reserve(request, deadline, seen.metadata)
                decision, hold = Decision.of_message(answer.decision), answer.hold
                expires_after = answer.expires_after.ToTimedelta()
            except WeirError as error:
                decision, hold, expires_after = self._fallback(error, on_failure), "", timedelta()
            seen.decided(decision)
            return AsyncReservation(self, decision, hold, expires_after)

    def slot(
        self,
        key: Sequence[str],
        *,
        ttl: Time | None = None,
        domain: str = "",
        cost: int = 1,
        deadline: Time | None = None,
        on_failure: OnFailure | None = None,
    ) -> AsyncSlot:
        """Takes a slot of each concurrency limit on the path, and holds it while a block runs.

        ```python
        async with client.slot(["exports", "alex"]) as slot:
            if slot.decision.allowed:
                await export()
        ```

        Args:
            ttl: the time after which the slot is free if this process dies; default: the limit's ttl.
        """

        async def reserve() -> AsyncReservation:
            return await self.reserve(key, cost, ttl=ttl, domain=domain, deadline=deadline, on_failure=on_failure)

        return AsyncSlot(reserve, ttl)

    async def guard(
        self,
        key: Iterable[str],
        *,
        domain: str = "",
        cost: int = 1,
        limits: Sequence[Limit] | None = None,
        factor: float | None = None,
        deadline: Time | None = None,
        fail_closed: bool | None = None,
        lease: bool | None = None,
    ) -> Verdict:
        """Checks a request of a server: whether it passes, and the headers of its response. It raises no WeirError.

        Segments of the key may come from the user: empty and overlong ones are repaired.

        Args:
            fail_closed: if the service does not decide, refuse the request with 503 (fail closed), or let it pass (fail
                open). Default: fail open, unless the client's `on_failure` is `DENY`.
            lease: overrides the client's `lease`.
        """
        try:
            decision = await self.check(
                repair(key),
                domain=domain,
                cost=cost,
                limits=limits,
                factor=factor,
                levels=True,
                deadline=deadline,
                on_failure=OnFailure.ERROR,
                lease=lease,
            )
        except WeirError as error:
            return self._undecided(error, fail_closed=fail_closed)
        return Verdict.of_decision(decision)

    async def reset(
        self, key: Sequence[str], *, domain: str = "", subtree: bool = False, deadline: Time | None = None
    ) -> bool:
        """Removes the state of a key, and with `subtree` of all keys below it: as if never used.

        Returns:
            Whether there was any.
        """
        request = pb.ResetRequest(domain=domain, key=key, subtree=subtree)
        return removed(await self._send(_methods.RESET, request, deadline))

    async def wait_ready(self, timeout: Time) -> bool:
        """Connects, and waits until the service answers. Without it the first check connects, within its deadline.

        Raises:
            WeirError: the service answers with another error than an outage, as for rejected credentials, or ones
                without the role `check`; or the client is closed.
        """
        ends_at = time.monotonic() + deadline_seconds(timeout)
        while (remaining := self._open_until(ends_at)) > 0:
            try:
                await self._send_once(_methods.CHECK_BATCH, pb.CheckBatchRequest(), remaining, wait_for_ready=True)
                return True
            except grpc.aio.AioRpcError as error:
                pause = pause_until_ready(errors.of_rpc(error), ends_at)
            await asyncio.sleep(pause)
        return False

    async def close(self) -> None:
        """Returns leased units to the service, at most until the deadline, and closes all connections.

        Calls fail afterwards. Before Python 3.11 calls in flight end with `asyncio.CancelledError`. Calls that
        reserve are awaited, and those whose tasks were cancelled are refunded, at most until the deadline too.
        """
        await to_its_end(self._close())

    async def _close(self) -> None:
        ends_at = time.monotonic() + self._deadline_seconds
        # A task that is cancelled may not have noticed it yet, so all that reserve are awaited.
        while self._reserving and (remaining := ends_at - time.monotonic()) > 0:
            await asyncio.wait(self._reserving, timeout=remaining)
        self._closed = True
        await self._leases.return_units(self._deadline_seconds)
        self._channel_closed = True
        if self._channel:
            await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _check(
        self, request: pb.CheckRequest, deadline: Time | None, metadata: Metadata, leased: ToAsk | None = None
    ) -> pb.CheckResponse:
        if leased and leased.renewal:
            call = self._call(deadline, may_repeat=False)
            try:
                return await self._leases.decide(leased.entry, leased.renewal, request, call)
            except Rejected:
                deadline = call.remaining()
        if self._coalesce and self._batches is None:
            self._batches = AsyncBatches(partial(self._send_once, _methods.CHECK_BATCH))
        batches = self._batches
        if batches and self._may_share(deadline) and batches.take(request):
            reply = await self._repeat(deadline, may_repeat(request), lambda call: batches.check(request, call))
        else:
            reply = await self._send(_methods.CHECK, request, deadline, may_repeat(request), metadata)
        if leased:
            self._leases.checked(leased, reply)
        return reply

    async def _reserve(
        self, request: pb.ReserveRequest, deadline: Time | None, metadata: Metadata
    ) -> pb.ReserveResponse:
        """Sends a reservation. If the task is cancelled meanwhile, it continues, and what it holds is refunded."""
        repeat = may_repeat(request.check)
        reserving = self._awaited_at_close(self._send(_methods.RESERVE, request, deadline, repeat, metadata))
        try:
            return await asyncio.shield(reserving)
        except asyncio.CancelledError:
            self._awaited_at_close(self._refund(reserving))
            raise

    def _awaited_at_close(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        task = asyncio.create_task(work)
        self._reserving.add(task)
        task.add_done_callback(self._reserving.discard)
        return task

    async def _refund(self, reserving: asyncio.Task[pb.ReserveResponse]) -> None:
        with suppress(WeirError):
            hold = (await reserving).hold
            reservation = AsyncReservation(self, Decision(allowed=True), hold, timedelta())
            await reservation.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)

    async def _send(
        self,
        method: Method[Request, Reply],
        request: Request,
        deadline: Time | None,
        may_repeat: bool = True,
        metadata: Metadata = (),
    ) -> Reply:
        def attempt(call: Call) -> Awaitable[Reply]:
            return self._send_once(method, request, call.remaining(), call.is_retry, metadata)

        return await self._repeat(deadline, may_repeat, attempt)

    async def _repeat(
        self, deadline: Time | None, may_repeat: bool, attempt: Callable[[Call], Awaitable[Reply]]
    ) -> Reply:
        with self._call(deadline, may_repeat=may_repeat) as call:
            while True:
                try:
                    return await attempt(call)
                except grpc.aio.AioRpcError as error:
                    failure = errors.of_rpc(error)
                except WeirError as error:
                    failure = error
                await asyncio.sleep(call.failed(failure))

    async def _send_once(
        self,
        method: Method[Request, Reply],
        request: Request,
        timeout: float,
        wait_for_ready: bool,
        metadata: Metadata = (),
    ) -> Reply:
        return await self._until_closed(super()._send_once(method, request, timeout, wait_for_ready, metadata))

    async def _until_closed(self, call: Awaitable[Answer]) -> Answer:
        try:
            return await call
        except asyncio.CancelledError:
            # gRPC cancels the calls of a closed channel, as if their tasks were cancelled.
            if self._channel_closed and not may_be_cancelled():
                raise closed() from None
            raise

    def _connected(self) -> grpc.aio.Channel:
        if self._channel is None:
            if self._tls:
                self._channel = grpc.aio.secure_channel(self._target, self._tls, self._options)
            else:
                self._channel = grpc.aio.insecure_channel(self._target, self._options)
        return self._channel
