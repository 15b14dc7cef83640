"""The client for threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType

import grpc

from weir import _methods, errors
from weir._base import ClientBase, domains_of, joint_request, pause_until_ready, removed
from weir._batches import Batches
from weir._call import Call
from weir._credentials import Metadata
from weir._decision import Decision, JointDecision, OnFailure
from weir._guard import Verdict, repair
from weir._lease.requests import Rejected
from weir._lease.table import ToAsk
from weir._lease.threads import ThreadLeases
from weir._methods import Method, Reply, Request
from weir._request import Check, may_repeat
from weir._reservation import OnExpiry, Reservation, reserve_request
from weir._slot import Slot
from weir._times import Time, deadline_seconds
from weir.errors import WeirError
from weir.limits import Charge, Limit
from weir.v1 import weir_pb2 as pb


class Client(ClientBase):
    """A client for threads. Make one for each service, share it between threads, and close it at the end.

    Args:
        target: `host:port`, `dns:///name:port` or `unix:PATH`; or several `IP:port`. Calls are balanced over all
            addresses.
        tls: TLS files; default: no TLS.
        token: the bearer token. Send it over TLS only, except on loopback.
        token_file: a file with the bearer token. A call looks for a changed file at most once a second, so a new token
            is used without a restart.
        deadline: the deadline of a call, retries included. Default 50 ms.
        on_failure: the result of a check that the service does not decide, in an outage.
        retries: how often an idempotent call is retried after UNAVAILABLE. With retries a check that charges or refunds
            carries a `request_id`, whose answer the service remembers. 0 turns retries off.
        breaker: the circuit breaker.
        coalesce: sends checks that are made at the same time in batches.
        lease: decides checks of hot keys in this process, with leased units, if the policy leases them.
        meter_provider: OpenTelemetry's, for metrics (`weir-client[otel]`); default: the global provider.
        tracer_provider: OpenTelemetry's, for traces; default: the global provider.
    """

    def _open(self) -> None:
        if self._tls:
            self._channel = grpc.secure_channel(self._target, self._tls, self._options)
        else:
            self._channel = grpc.insecure_channel(self._target, self._options)
        self._batches = Batches(partial(self._send_once, _methods.CHECK_BATCH)) if self._coalesce else None
        self._leases: ThreadLeases = ThreadLeases(self._channel, self._token, self.breaker)
        self._pid = os.getpid()

    def check(
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
                reply = self._check(request, deadline, seen.metadata, leased)
                decision = Decision.of_message(reply)
            except WeirError as error:
                decision = self._fallback(error, on_failure)
            seen.decided(decision)
            return decision

    def check_batch(
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
                    answer = self._send(_methods.CHECK_BATCH, request, deadline, repeat, seen.metadata)
                    decisions = self._batch_decisions(answer.results, on_failure)
            except WeirError as error:
                decisions = self._batch_fallback(error, on_failure, len(messages))
            for place, failure in invalid.items():
                decisions.insert(place, failure)
            seen.decided(*decisions)
            return decisions

    def check_all(
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
                answer = self._send(_methods.CHECK_ALL, request, deadline, may_repeat(*request.checks), seen.metadata)
                decision = self._joint_decision(answer)
            except WeirError as error:
                decision = self._joint_fallback(error, on_failure, len(checks))
            seen.decided(*decision.results)
            return decision

    def reserve(
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
    ) -> Reservation:
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
                answer = self._send(_methods.RESERVE, request, deadline, may_repeat(request.check), seen.metadata)
                decision, hold = Decision.of_message(answer.decision), answer.hold
                expires_after = answer.expires_after.ToTimedelta()
            except WeirError as error:
                decision, hold, expires_after = self._fallback(error, on_failure), "", timedelta()
            seen.decided(decision)
            return Reservation(self, decision, hold, expires_after)

    def slot(
        self,
        key: Sequence[str],
        *,
        ttl: Time | None = None,
        domain: str = "",
        cost: int = 1,
        deadline: Time | None = None,
        on_failure: OnFailure | None = None,
    ) -> Slot:
        """Takes a slot of each concurrency limit on the path, and holds it while a block runs.

        ```python
        with client.slot(["exports", "alex"]) as slot:
            if slot.decision.allowed:
                export()
        ```

        Args:
            ttl: the time after which the slot is free if this process dies; default: the limit's ttl.
        """

        def reserve() -> Reservation:
            return self.reserve(key, cost, ttl=ttl, domain=domain, deadline=deadline, on_failure=on_failure)

        return Slot(reserve, ttl)

    def guard(
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
            decision = self.check(
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

    def reset(
        self, key: Sequence[str], *, domain: str = "", subtree: bool = False, deadline: Time | None = None
    ) -> bool:
        """Removes the state of a key, and with `subtree` of all keys below it: as if never used.

        Returns:
            Whether there was any.
        """
        request = pb.ResetRequest(domain=domain, key=key, subtree=subtree)
        return removed(self._send(_methods.RESET, request, deadline))

    def wait_ready(self, timeout: Time) -> bool:
        """Connects, and waits until the service answers. Without it the first check connects, within its deadline.

        Raises:
            WeirError: the service answers with another error than an outage, as for rejected credentials, or ones
                without the role `check`; or the client is closed.
        """
        ends_at = time.monotonic() + deadline_seconds(timeout)
        while (remaining := self._open_until(ends_at)) > 0:
            try:
                self._send_once(_methods.CHECK_BATCH, pb.CheckBatchRequest(), remaining, wait_for_ready=True)
                return True
            except grpc.RpcError as error:
                pause = pause_until_ready(errors.of_rpc(error), ends_at)
            time.sleep(pause)
        return False

    def close(self) -> None:
        """Returns leased units to the service, at most until the deadline, and closes all connections.

        Calls fail afterwards. In a forked child, the connections stay open until the process ends.
        """
        self._closed = True
        self._leases.return_units(self._deadline_seconds)
        if self._batches:
            self._batches.close()
        # A forked child would wait for ever for calls of its parent, whose threads do not run in it.
        if self._pid == os.getpid():
            self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check(
        self, request: pb.CheckRequest, deadline: Time | None, metadata: Metadata, leased: ToAsk | None = None
    ) -> pb.CheckResponse:
        if leased and leased.renewal:
            call = self._call(deadline, may_repeat=False)
            try:
                return self._leases.decide(leased.entry, leased.renewal, request, call)
            except Rejected:
                deadline = call.remaining()
        batches = self._batches
        if batches and self._may_share(deadline) and batches.take(request):
            reply = self._repeat(deadline, may_repeat(request), lambda call: batches.check(request, call))
        else:
            reply = self._send(_methods.CHECK, request, deadline, may_repeat(request), metadata)
        if leased:
            self._leases.checked(leased, reply)
        return reply

    def _send(
        self,
        method: Method[Request, Reply],
        request: Request,
        deadline: Time | None,
        may_repeat: bool = True,
        metadata: Metadata = (),
    ) -> Reply:
        def attempt(call: Call) -> Reply:
            reply: Reply = self._send_once(method, request, call.remaining(), call.is_retry, metadata)
            return reply

        return self._repeat(deadline, may_repeat, attempt)

    def _connected(self) -> grpc.Channel:
        return self._channel

    def _repeat(self, deadline: Time | None, may_repeat: bool, attempt: Callable[[Call], Reply]) -> Reply:
        with self._call(deadline, may_repeat=may_repeat) as call:
            while True:
                try:
                    return attempt(call)
                except grpc.RpcError as error:
                    failure = errors.of_rpc(error)
                except WeirError as error:
                    failure = error
                time.sleep(call.failed(failure))
