from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support import POLICY, Service, eventually

import weir
from weir import _telemetry

TRADE = ["user", "alex", "trade"]


class Collector:
    """Collects the metrics and spans of a client."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.options = {"meter_provider": MeterProvider([self.reader]), "tracer_provider": self.tracers}

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        data = self.reader.get_metrics_data()
        assert data
        return {
            tuple(sorted(dict(point.attributes or {}).items())): point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }

    def counts(self) -> dict[tuple[Any, ...], int]:
        return {
            tuple(value for _, value in labels): point.value
            for labels, point in self.points("weir.client.checks").items()
        }


def test_checks_are_counted_and_measured(service: Service, connect: Callable[..., Any]) -> None:
    collector = Collector()
    client = connect(service.address, **collector.options)
    for _ in range(4):
        client.check(TRADE)
    with pytest.raises(weir.NotFound):
        client.check(TRADE, domain="none")
    client.check_batch([weir.Check(["user", "a"]), weir.Check([]), weir.Check(["user", "a"], domain="none")])
    client.check_all([weir.Check(["user", "a"])])
    client.reserve(["user", "a"], ttl=60).commit()
    # domain, outcome, source
    assert collector.counts() == {
        ("default", "allowed", "service"): 6,
        ("default", "refused", "service"): 1,
        ("default", "error", "service"): 1,
        ("none", "error", "service"): 2,
    }
    points = collector.points("weir.client.duration")
    durations = {labels: point.count for labels, point in points.items()}
    assert durations == {(("domain", "default"),): 7, (("domain", "none"),): 1}
    # The same in all client packages.
    bounds = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
    assert {point.explicit_bounds for point in points.values()} == {bounds}


def test_each_check_of_a_call_that_fails_is_counted_in_its_domain(
    service: Service, connect: Callable[..., Any]
) -> None:
    collector = Collector()
    client = connect(service.address, deadline=0.5, **collector.options)
    service.kill()
    checks = [weir.Check(TRADE), weir.Check(TRADE, domain="other"), weir.Check(TRADE)]
    with pytest.raises(weir.Outage):
        client.check_batch(checks)
    client.check_batch(checks, on_failure=weir.OnFailure.DENY)
    client.check_all(checks[:1] * 5, on_failure=weir.OnFailure.ALLOW)
    assert collector.counts() == {
        ("default", "error", "service"): 2,
        ("other", "error", "service"): 1,
        ("default", "refused", "fallback"): 2,
        ("other", "refused", "fallback"): 1,
        ("default", "allowed", "fallback"): 5,
    }


async def test_a_check_that_is_cancelled_is_in_no_metric() -> None:
    collector = Collector()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options: Any = collector.options
        async with weir.AsyncClient(address, deadline=20, **options) as client:
            task = asyncio.create_task(client.check(TRADE))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert len(collector.spans.get_finished_spans()) == 1
    assert collector.counts() == {}
    assert collector.points("weir.client.duration") == {}


def test_leased_checks_are_counted_alone(serve: Callable[..., Service], connect: Callable[..., Any]) -> None:
    collector = Collector()
    client = connect(serve(policy=f"lease: true{POLICY}").address, lease=True, **collector.options)
    checks = 100
    calls = sum(client.check(["user", "a"]).source is weir.Source.SERVICE for _ in range(checks))
    assert collector.counts() == {
        ("default", "allowed", "service"): calls,
        ("default", "allowed", "lease"): checks - calls,
    }
    (duration,) = collector.points("weir.client.duration").values()
    assert duration.count == calls


def test_spans_say_what_was_decided_and_never_for_whom(service: Service, connect: Callable[..., Any]) -> None:
    collector = Collector()
    client = connect(service.address, **collector.options)
    client.check(TRADE)
    with pytest.raises(weir.NotFound):
        client.check(TRADE, domain="none")
    with pytest.raises(weir.InvalidRequest):
        client.check([*TRADE, "x" * 1025])
    with pytest.raises(TypeError):
        client.check(TRADE, deadline="soon")
    allowed, failed, invalid, unexpected = collector.spans.get_finished_spans()
    assert allowed.name == failed.name == "weir.check"
    assert dict(allowed.attributes or {}) == {
        "weir.domain": "default",
        "weir.allowed": True,
        "weir.limit": 3,
        "weir.remaining": 2,
        "weir.source": "service",
    }
    assert not failed.status.is_ok
    assert dict(failed.attributes or {}) == {"weir.domain": "none", "error.type": "NOT_FOUND"}
    assert not invalid.status.is_ok
    assert not invalid.events
    assert not unexpected.status.is_ok
    assert dict(unexpected.attributes or {}) == {"weir.domain": "default", "error.type": "TypeError"}
    assert "alex" not in str([span.to_json() for span in (allowed, failed, invalid, unexpected)])


def test_the_breaker_and_fallbacks_are_told(service: Service, connect: Callable[..., Any]) -> None:
    collector = Collector()
    breaker = weir.Breaker(failures=1, open_for=0)
    client = connect(
        service.address, breaker=breaker, on_failure=weir.OnFailure.ALLOW, deadline=1.0, **collector.options
    )
    service.kill()
    client.check(TRADE)
    connect(service.address.replace("127.0.0.1", "localhost"), **collector.options)
    states = {dict(labels)["server.address"]: point.value for labels, point in breakers(collector)}
    assert states == {service.address: 2, service.address.replace("127.0.0.1", "localhost"): 0}
    assert collector.counts() == {("default", "allowed", "fallback"): 1}
    service.start()
    client.check(TRADE, deadline=20)
    assert {point.value for _, point in breakers(collector)} == {0}


def breakers(collector: Collector) -> Any:
    return collector.points("weir.client.breaker").items()


def test_the_service_goes_on_in_the_trace_of_the_caller(
    serve: Callable[..., Service], connect: Callable[..., Any]
) -> None:
    collector = Collector()
    service = serve(WEIR_LOG__LEVEL="weir::access=debug,info")
    connect(service.address, **collector.options).check(TRADE)
    (span,) = collector.spans.get_finished_spans()
    context = span.get_span_context()
    assert context
    trace = f'"trace_id":"{context.trace_id:032x}"'
    eventually(lambda: any('"call":"weir.v1.RateLimiter/Check"' in line and trace in line for line in service.log))


def test_opentelemetry_before_1_30_takes_no_boundaries() -> None:
    meter: Any = SimpleNamespace(create_histogram=lambda name, unit, description: name)
    assert str(_telemetry._durations(meter)) == "weir.client.duration"


def test_without_opentelemetry_nothing_is_told(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_telemetry, "HAS_OTEL", False)
    with weir.Client(service.address, deadline=20) as client:
        assert client.check(TRADE)
    with pytest.raises(ModuleNotFoundError, match=r"weir-client\[otel\]"):
        weir.Client(service.address, meter_provider=Collector().options["meter_provider"])  # type: ignore[arg-type]
