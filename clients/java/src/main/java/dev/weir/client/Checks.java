package dev.weir.client;

import io.grpc.Deadline;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CheckAllRequest;
import weir.v1.Weir.CheckBatchRequest;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.CheckResponse;
import weir.v1.Weir.ReserveRequest;

/** The calls with checks: encodes requests, and converts answers and errors. */
final class Checks {
    private final Caller caller;
    private final Optional<CheckStream> stream;
    private final Settler settler;
    private final Telemetry telemetry;
    private final Duration deadline;
    private final OnFailure onFailure;
    private final Leases leases;
    private final boolean usesLeases;
    private final RequestIds requestIds = new RequestIds();

    Checks(
            Caller caller,
            Optional<CheckStream> stream,
            Settler settler,
            Telemetry telemetry,
            Duration deadline,
            OnFailure onFailure,
            Leases leases,
            boolean usesLeases) {
        this.caller = caller;
        this.stream = stream;
        this.settler = settler;
        this.telemetry = telemetry;
        this.deadline = deadline;
        this.onFailure = onFailure;
        this.leases = leases;
        this.usesLeases = usesLeases;
    }

    /** Decides the check by a lease if it can, or returns the step that decides it. */
    Leases.Step lease(Check check) {
        return check.mayUseLease(usesLeases) ? leases.decide(check) : Leases.Ordinary.ALONE;
    }

    /** Has the service decide, by the request of a lease or by a check. */
    CompletableFuture<Decision> decide(Check check, Leases.Step step) {
        var observation = telemetry.begin(List.of(check));
        return ask(check, step, deadline(check)).handle((response, failure) -> {
            var result = result(check, response, failure);
            observation.end(List.of(result));
            return result.orElseThrow();
        });
    }

    private CompletableFuture<CheckResponse> ask(Check check, Leases.Step step, Deadline until) {
        if (step instanceof Leases.Asks asks) {
            return leases.ask(asks, check, until)
                    .thenCompose(answer -> answer.map(CompletableFuture::completedFuture)
                            .orElseGet(() -> ask(check, Leases.Ordinary.ALONE, until)));
        }
        var request = request(check);
        return caller.protect(until, () -> send(request, until)).whenComplete((response, failure) -> {
            if (failure == null && Lease.isRefusedForNow(response) && step instanceof Leases.Ordinary ordinary) {
                leases.refused(ordinary, check.cost(), response);
            }
        });
    }

    private CompletableFuture<CheckResponse> send(CheckRequest request, Deadline until) {
        var repeatable = RequestIds.isRepeatable(request);
        return stream.flatMap(open -> open.send(request, until, repeatable))
                .orElseGet(() -> caller.attempt(RateLimiterGrpc.getCheckMethod(), request, until, repeatable));
    }

    CompletableFuture<List<CheckResult>> decideBatch(List<Check> checks) {
        var observation = telemetry.begin(checks);
        var requests = checks.stream().map(this::request).toList();
        var batch = CheckBatchRequest.newBuilder().addAllChecks(requests).build();
        var repeatable = requests.stream().allMatch(RequestIds::isRepeatable);
        return caller.call(RateLimiterGrpc.getCheckBatchMethod(), batch, deadline(checks), repeatable)
                .handle((response, failure) -> {
                    var results = results(checks, failure == null ? response.getResultsList() : List.of(), failure);
                    observation.end(results);
                    return results;
                });
    }

    CompletableFuture<JointDecision> decideAll(List<Check> checks) {
        var observation = telemetry.begin(checks);
        // CheckAll takes no request ids.
        var requests = checks.stream().map(Check::request).toList();
        var all = CheckAllRequest.newBuilder().addAllChecks(requests).build();
        var repeatable = requests.stream().allMatch(RequestIds::isRepeatable);
        return caller.call(RateLimiterGrpc.getCheckAllMethod(), all, deadline(checks), repeatable)
                .handle((response, failure) -> {
                    var results = results(checks, failure == null ? response.getResultsList() : List.of(), failure);
                    observation.end(results);
                    if (checks.isEmpty() && failure != null) {
                        // No result carries the error.
                        return new JointDecision(undecided(onFailure, Caller.error(failure)).orElseThrow().allowed(), List.of());
                    }
                    var decisions = results.stream().map(CheckResult::orElseThrow).toList();
                    return new JointDecision(decisions.stream().allMatch(Decision::allowed), decisions);
                });
    }

    CompletableFuture<Reservation> hold(Check check, Optional<Duration> ttl, OnExpiry onExpiry) {
        var observation = telemetry.begin(List.of(check));
        var request = request(check);
        var reserve = ReserveRequest.newBuilder().setCheck(request).setOnExpiry(Wire.onExpiry(onExpiry));
        ttl.map(Wire::duration).ifPresent(reserve::setTtl);
        var repeatable = RequestIds.isRepeatable(request);
        return caller.call(RateLimiterGrpc.getReserveMethod(), reserve.build(), deadline(check), repeatable)
                .handle((response, failure) -> {
                    var result = result(check, failure == null ? response.getDecision() : null, failure);
                    observation.end(List.of(result));
                    var decision = result.orElseThrow();
                    return failure == null
                            ? new Reservation(decision, response.getHold(), Wire.duration(response.getExpiresAfter()), settler)
                            : new Reservation(decision, "", Duration.ZERO, settler);
                });
    }

    private CheckRequest request(Check check) {
        return caller.repeats() ? requestIds.identified(check.request()) : check.request();
    }

    private List<CheckResult> results(List<Check> checks, List<CheckResponse> responses, Throwable failure) {
        return IntStream.range(0, checks.size())
                .mapToObj(i -> result(checks.get(i), failure == null ? responses.get(i) : null, failure))
                .toList();
    }

    private CheckResult result(Check check, CheckResponse response, Throwable failure) {
        if (failure != null) {
            return undecided(check.onFailure().orElse(onFailure), Caller.error(failure));
        }
        return response.hasError()
                ? undecided(check.onFailure().orElse(onFailure), WeirException.of(response.getError()))
                : new CheckResult.Decided(Wire.decision(response));
    }

    private static CheckResult undecided(OnFailure action, WeirException error) {
        if (action == OnFailure.ERROR || !error.kind().isOutage()) {
            return new CheckResult.Failed(error);
        }
        return new CheckResult.Decided(Decision.fallback(action == OnFailure.ALLOW, error));
    }

    private Deadline deadline(Check check) {
        return Caller.after(check.deadline().orElse(deadline));
    }

    /** Returns the earliest deadline of the checks. A check that has none has the client's. */
    private Deadline deadline(List<Check> checks) {
        var earliest = checks.stream().map(check -> check.deadline().orElse(deadline)).min(Duration::compareTo);
        return Caller.after(earliest.orElse(deadline));
    }

}
