package dev.weir.client;

import io.grpc.Deadline;
import io.grpc.MethodDescriptor;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** Calls behind the circuit breaker, which are repeated where that is safe. */
final class Caller {
    private final Connection connection;
    private final CircuitBreaker breaker;
    private final int retries;
    private final Executor executor;

    /** Futures of the public API complete on the executor. */
    Caller(Connection connection, CircuitBreaker breaker, int retries, Executor executor) {
        this.connection = connection;
        this.breaker = breaker;
        this.retries = retries;
        this.executor = executor;
    }

    /** The deadline of a call that begins now. */
    static Deadline after(Duration timeout) {
        return Deadline.after(timeout.toNanos(), TimeUnit.NANOSECONDS);
    }

    /** Whether calls are repeated at all. */
    boolean repeats() {
        return retries > 0;
    }

    <Q, A> CompletableFuture<A> call(MethodDescriptor<Q, A> method, Q request, Deadline deadline, boolean repeatable) {
        return protect(() -> attempt(method, request, deadline, repeatable));
    }

    /** A call that {@link #protect} already watches. */
    <Q, A> CompletableFuture<A> attempt(MethodDescriptor<Q, A> method, Q request, Deadline deadline, boolean repeatable) {
        return attempt(method, request, deadline, repeatable ? retries : 0);
    }

    /** A call that {@link #protect} already watches, with so many retries. */
    <Q, A> CompletableFuture<A> attempt(MethodDescriptor<Q, A> method, Q request, Deadline deadline, int retriesLeft) {
        var answer = connection.call(method, request, Connection.until(deadline));
        if (retriesLeft == 0) {
            return answer;
        }
        return answer.exceptionallyCompose(failure -> isLost(failure) && !deadline.isExpired()
                ? attempt(method, request, deadline, retriesLeft - 1)
                : CompletableFuture.failedFuture(failure));
    }

    /** Whether the call may succeed on another replica or connection. */
    static boolean isLost(Throwable failure) {
        return error(failure).kind() == WeirException.Kind.UNAVAILABLE;
    }

    /** Fails at once while the circuit breaker is open, and tells it how the call ends. */
    <A> CompletableFuture<A> protect(Supplier<CompletableFuture<A>> call) {
        if (!breaker.admits()) {
            return CompletableFuture.failedFuture(new WeirException(
                    WeirException.Kind.CIRCUIT_OPEN, "the last calls got no answer: the circuit breaker is open"));
        }
        return call.get().whenComplete((answer, failure) ->
                breaker.record(failure != null && error(failure).kind().isOutage()));
    }

    /** The error of a future, which may be wrapped. */
    static WeirException error(Throwable failure) {
        return WeirException.of(
                failure instanceof CompletionException && failure.getCause() != null ? failure.getCause() : failure);
    }

    /** A future for the caller, whose code must not run on gRPC's threads. */
    <A> CompletableFuture<A> published(CompletableFuture<A> answer) {
        return answer.whenCompleteAsync((value, failure) -> {}, executor);
    }

    /** Waits for a future. The calls' deadlines end it. */
    static <A> A await(CompletableFuture<A> answer) {
        try {
            return answer.get();
        } catch (ExecutionException failed) {
            var error = error(failed.getCause());
            // It was made on another thread, and the caller wants to know where it called.
            error.fillInStackTrace();
            throw error;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new WeirException(WeirException.Kind.CANCELLED, "interrupted while waiting for the service");
        }
    }
}
