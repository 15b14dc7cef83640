"""What both kinds of client are made of."""

from __future__ import annotations

from os import PathLike

from weir._breaker import Breaker
from weir._call import Call
from weir._channel import TLS, Target, options, uri
from weir._credentials import Metadata, Token, TokenFile
from weir._decision import Decision, OnFailure
from weir._times import Time, seconds
from weir.errors import WeirError

DEADLINE_SECONDS = 0.05


class ClientBase:
    """Options, and what follows from them."""

    def __init__(
        self,
        target: Target,
        *,
        tls: TLS | None = None,
        token: str | None = None,
        token_file: str | PathLike[str] | None = None,
        deadline: Time = DEADLINE_SECONDS,
        on_failure: OnFailure = OnFailure.ERROR,
        retries: int = 1,
        breaker: Breaker | None = None,
    ) -> None:
        if token is not None and token_file is not None:
            raise ValueError("a token or a token_file, not both")
        self._target = uri(target)
        self._options = options(target, tls)
        self._tls = tls.credentials() if tls else None
        self._token = TokenFile(token_file) if token_file is not None else Token(token)
        self._deadline_seconds = seconds(deadline)
        self._on_failure = on_failure
        self._retries = retries
        self._closed = False
        self.breaker = breaker or Breaker()

    def _call(self, deadline: Time | None, *, may_repeat: bool) -> Call:
        if self._closed:
            raise RuntimeError("the client is closed")
        deadline_seconds = self._deadline_seconds if deadline is None else seconds(deadline)
        return Call(self.breaker, deadline_seconds, self._retries if may_repeat else 0)

    def _metadata(self) -> Metadata:
        return self._token.metadata()

    def _fallback(self, error: WeirError, on_failure: OnFailure | None) -> Decision:
        return Decision.fallback(error, on_failure or self._on_failure)
