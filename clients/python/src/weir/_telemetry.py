"""Metrics and traces with OpenTelemetry, if its API is installed."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from weir._breaker import Breaker, State
from weir._credentials import Metadata
from weir._decision import Decision, Source
from weir.errors import WeirError

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # without the extra `otel`
    HAS_OTEL = False
else:
    HAS_OTEL = True

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_SCOPE = "weir"
_BOUNDARIES_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_GAUGE = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}


class Observation:
    """The telemetry of one call. This one records nothing."""

    metadata: Metadata = ()
    """Metadata of the call: the trace context, which makes the service's span a child of the client's."""

    def decided(self, *decisions: Decision | WeirError) -> None:
        """Records the answers of the call: one for each check."""


class Telemetry(Protocol):
    """Observes the calls of a client."""

    def observe(self, *domains: str) -> AbstractContextManager[Observation]:
        """Observes a call with checks of these domains, one for each check."""

    def leased(self, domain: str, decision: Decision) -> None:
        """Records a check that a lease has decided, without a call."""


class NoTelemetry:
    """Records nothing, without OpenTelemetry."""

    _nothing = nullcontext(Observation())

    def observe(self, *domains: str) -> AbstractContextManager[Observation]:
        """Observes a call with checks of these domains, one for each check."""
        return self._nothing

    def leased(self, domain: str, decision: Decision) -> None:
        """Records a check that a lease has decided, without a call."""


class _Recording(Observation):
    def __init__(self, span: Span) -> None:
        self.decisions: tuple[Decision | WeirError, ...] = ()
        self._span = span
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
        self.metadata = tuple(carrier.items())

    def decided(self, *decisions: Decision | WeirError) -> None:
        """Records the answers of the call: one for each check."""
        self.decisions = decisions
        if len(decisions) == 1 and isinstance(decision := decisions[0], Decision):
            self._span.set_attributes(
                {
                    "weir.allowed": decision.allowed,
                    "weir.limit": decision.limit,
                    "weir.remaining": decision.remaining,
                    "weir.source": decision.source.value,
                }
            )
            if decision.error:
                self._record(decision.error)

    def failed(self, error: Exception, checks: int) -> None:
        """Records the error of a call without decisions."""
        if isinstance(error, WeirError):
            self.decisions = (error,) * checks
        self._record(error)
        self._span.set_status(trace.StatusCode.ERROR)

    def _record(self, error: Exception) -> None:
        # Without the message, which may quote the key.
        kind = error.code.name if isinstance(error, WeirError) else type(error).__name__
        self._span.set_attribute("error.type", kind)


class OpenTelemetry:
    """Counts checks, measures the duration of calls, and records a span for each. Attributes do not contain keys."""

    def __init__(
        self,
        target: str,
        breaker: Breaker,
        meter_provider: MeterProvider | None,
        tracer_provider: TracerProvider | None,
    ) -> None:
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._checks = meter.create_counter("weir.client.checks", unit="{check}", description="Checks, by outcome")
        self._duration = _durations(meter)
        self._breaker = meter.create_gauge(
            "weir.client.breaker", description="The circuit breaker: 0 closed, 1 half-open, 2 open"
        )
        self._address = {"server.address": target}
        self._breaker_changed(breaker.state)
        breaker.on_change(self._breaker_changed)

    @contextmanager
    def observe(self, *domains: str) -> Iterator[Observation]:
        """Observes a call with checks of these domains, one for each check."""
        # The duration is recorded under the common domain of the checks, or else under the default domain.
        domain = _name(domains[0] if len(set(domains)) == 1 else "")
        started = time.perf_counter()
        with self._tracer.start_as_current_span(
            "weir.check",
            kind=trace.SpanKind.CLIENT,
            attributes={"weir.domain": domain},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            recording = _Recording(span)
            try:
                yield recording
            except Exception as error:
                recording.failed(error, len(domains))
                raise
            finally:
                # One that is cancelled has no outcome, and is in neither metric.
                if recording.decisions:
                    self._duration.record(time.perf_counter() - started, {"domain": domain})
                for decision, of_check in zip(recording.decisions, domains, strict=False):
                    self._checks.add(1, {**_labels(decision), "domain": _name(of_check)})

    def leased(self, domain: str, decision: Decision) -> None:
        """Records a check that a lease has decided, without a call."""
        self._checks.add(1, _leased_labels(decision.allowed, domain))

    def _breaker_changed(self, state: State) -> None:
        self._breaker.set(_GAUGE[state], self._address)


def _durations(meter: Meter) -> Histogram:
    name, unit, description = "weir.client.duration", "s", "Time of a call, with its retries"
    try:
        return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=_BOUNDARIES_SECONDS)
    except TypeError:  # before opentelemetry-api 1.30
        return meter.create_histogram(name, unit, description)


def _name(domain: str) -> str:
    """Returns the name of a domain, as in the service's own metrics."""
    return domain or "default"


def _labels(decision: Decision | WeirError) -> dict[str, str]:
    if isinstance(decision, WeirError):
        return {"outcome": "error", "source": Source.SERVICE.value}
    return {"outcome": "allowed" if decision.allowed else "refused", "source": decision.source.value}


@functools.lru_cache(maxsize=256)
def _leased_labels(allowed: bool, domain: str) -> dict[str, str]:
    # Cached, since the check itself takes only a few microseconds.
    return {**_labels(Decision(allowed, source=Source.LEASE)), "domain": _name(domain)}


def telemetry(
    target: str,
    breaker: Breaker,
    meter_provider: MeterProvider | None,
    tracer_provider: TracerProvider | None,
) -> Telemetry:
    """OpenTelemetry, if it is installed."""
    if HAS_OTEL:
        return OpenTelemetry(target, breaker, meter_provider, tracer_provider)
    if meter_provider or tracer_provider:
        raise ModuleNotFoundError("install weir-client[otel] for metrics and spans")
    return NoTelemetry()
