package dev.weir.client;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CancelRequest;
import weir.v1.Weir.CommitRequest;
import weir.v1.Weir.ExtendRequest;

/** Settles and extends reservations. These calls are idempotent. */
final class Settler {
    private final Caller caller;
    private final Duration deadline;
    private final FailureLog log = new FailureLog(
            "a reservation was not settled, and ends after its ttl", "a reservation cannot be settled");

    Settler(Caller caller, Duration deadline) {
        this.caller = caller;
        this.deadline = deadline;
    }

    CompletableFuture<Settlement> commit(String hold, OptionalLong actual) {
        var request = CommitRequest.newBuilder().setHold(hold);
        actual.ifPresent(request::setActual);
        return caller.call(RateLimiterGrpc.getCommitMethod(), request.build(), Caller.after(deadline), true)
                .thenApply(answer -> new Settlement(
                        answer.getCharged(), answer.getRefunded(), answer.getOverage(), answer.getDegraded()));
    }

    CompletableFuture<Settlement> cancel(String hold) {
        var request = CancelRequest.newBuilder().setHold(hold).build();
        return caller.call(RateLimiterGrpc.getCancelMethod(), request, Caller.after(deadline), true)
                .thenApply(answer -> new Settlement(answer.getCharged(), answer.getRefunded(), 0, answer.getDegraded()));
    }

    CompletableFuture<Duration> extend(String hold, Duration ttl) {
        return extend(hold, Optional.of(ttl), deadline);
    }

    /** Returns the time for which the reservation is held now. Without a ttl the concurrency limits on the path set it. */
    CompletableFuture<Duration> extend(String hold, Optional<Duration> ttl, Duration timeout) {
        var request = ExtendRequest.newBuilder().setHold(hold);
        ttl.map(Wire::duration).ifPresent(request::setTtl);
        return caller.call(RateLimiterGrpc.getExtendMethod(), request.build(), Caller.after(timeout), true)
                .thenApply(answer -> Wire.duration(answer.getExpiresAfter()));
    }

    <T> CompletableFuture<T> published(CompletableFuture<T> answer) {
        return caller.published(answer);
    }

    /** Waits for a settlement at the end of a block. If it fails, that is logged, and the block does not fail. */
    void finish(CompletableFuture<Settlement> settlement) {
        settlement.exceptionally(failure -> {
            log.add(Caller.error(failure));
            return null;
        }).join();
    }
}
