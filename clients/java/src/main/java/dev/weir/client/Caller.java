package dev.weir.client;

import io.grpc.Deadline;
import io.grpc.MethodDescriptor;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.function.Supplier;

/** Sends calls with retries, behind the circuit breaker. */
final class Caller {
    private static final Duration MAX_TIME = Duration.ofDays(1);

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

    /** Returns the deadline of a call that starts now. */
    static Deadline after(Duration timeout) {
        return Deadline.after(bounded(timeout).toNanos(), TimeUnit.NANOSECONDS);
    }

    /** Returns a time of at most a day: timers do not take arbitrarily long ones. */
    static Duration bounded(Duration time) {
        return time.compareTo(MAX_TIME) < 0 ? time : MAX_TIME;
    }

    /** Returns whether idempotent calls are retried at all. */
    boolean repeats() {
        return retries > 0;
    }

    <Q, A> CompletableFuture<A> call(MethodDescriptor<Q, A> method, Q request, Deadline deadline, boolean repeatable) {
        return protect(deadline, () -> attempt(method, request, deadline, repeatable));
    }

    /** Sends a call that is already inside {@link #protect}. */
    <Q, A> CompletableFuture<A> attempt(MethodDescriptor<Q, A> method, Q request, Deadline deadline, boolean repeatable) {
        var answer = connection.call(method, request, Connection.until(deadline));
        return repeatable
                ? answer.exceptionallyCompose(failure -> retryIfLost(method, request, deadline, retries, failure))
                : answer;
    }

    private <Q, A> CompletableFuture<A> retryIfLost(
            MethodDescriptor<Q, A> method, Q request, Deadline deadline, int retriesLeft, Throwable failure) {
        return retriesLeft > 0 && isLost(failure) && !deadline.isExpired()
                ? retry(method, request, deadline, retriesLeft - 1, failure)
                : CompletableFuture.failedFuture(failure);
    }

    /** Repeats a call inside {@link #protect} that ended with this failure. That many further retries may follow. */
    <Q, A> CompletableFuture<A> retry(
            MethodDescriptor<Q, A> method, Q request, Deadline deadline, int retriesLeft, Throwable failure) {
        // The failure of the first attempt often ends the connection too, so a retry waits for one.
        return connection.call(method, request, Connection.until(deadline).withWaitForReady())
                // The first attempt's error says more than that no connection came in time.
                .exceptionallyCompose(again -> error(again).kind() == WeirException.Kind.DEADLINE_EXCEEDED
                        ? CompletableFuture.failedFuture(failure)
                        : retryIfLost(method, request, deadline, retriesLeft, again));
    }

    /** Returns whether a retry on another replica or connection may succeed. */
    static boolean isLost(Throwable failure) {
        return error(failure).kind() == WeirException.Kind.UNAVAILABLE;
    }

    /**
     * Fails immediately if the deadline is over, or while the circuit breaker is open. Otherwise makes the call, and records
     * its outcome.
     */
    <A> CompletableFuture<A> protect(Deadline deadline, Supplier<CompletableFuture<A>> call) {
        return protect(deadline, call, answer -> true);
    }

    /** As {@link #protect(Deadline, Supplier)}. An answer that did not come from the service does not count. */
    <A> CompletableFuture<A> protect(Deadline deadline, Supplier<CompletableFuture<A>> call, Predicate<A> isOfService) {
        if (deadline.isExpired()) {
            // No sign of an outage: the caller has used up its time.
            return CompletableFuture.failedFuture(new WeirException(
                    WeirException.Kind.DEADLINE_EXCEEDED, "not sent: the deadline is over already"));
        }
        var permit = breaker.admit();
        if (permit.isEmpty()) {
            return CompletableFuture.failedFuture(new WeirException(
                    WeirException.Kind.CIRCUIT_OPEN, "the last calls got no answer: the circuit breaker is open"));
        }
        CompletableFuture<A> sent;
        try {
            sent = call.get();
        } catch (RuntimeException | Error failed) {
            breaker.record(permit.get(), CircuitBreaker.Outcome.UNKNOWN);
            throw failed;
        }
        return sent.whenComplete((answer, failure) -> breaker.record(
                permit.get(),
                failure == null && !isOfService.test(answer) ? CircuitBreaker.Outcome.UNKNOWN : outcome(failure)));
    }

    /** Returns the outcome of a call for the circuit breaker: errors other than outages are answers. */
    private static CircuitBreaker.Outcome outcome(Throwable failure) {
        if (failure == null) {
            return CircuitBreaker.Outcome.ANSWER;
        }
        var kind = error(failure).kind();
        if (kind == WeirException.Kind.CANCELLED) {
            return CircuitBreaker.Outcome.UNKNOWN;
        }
        return kind.isOutage() ? CircuitBreaker.Outcome.OUTAGE : CircuitBreaker.Outcome.ANSWER;
    }

    /** Returns the error of a future, unwrapped. */
    static WeirException error(Throwable failure) {
        return WeirException.of(
                failure instanceof CompletionException && failure.getCause() != null ? failure.getCause() : failure);
    }

    /** Returns a future for the caller, whose code must not run on gRPC's threads. */
    <A> CompletableFuture<A> published(CompletableFuture<A> answer) {
        return answer.whenCompleteAsync((value, failure) -> {}, executor);
    }

    /** Returns a value for the caller after a delay. */
    <A> CompletableFuture<A> later(A value, Duration delay) {
        // With the executor itself, the thread of all delays would run it: a rejection would be lost there, and an executor
        // such as Runnable::run would run the caller's code there.
        return published(CompletableFuture.supplyAsync(
                () -> value, CompletableFuture.delayedExecutor(delay.toNanos(), TimeUnit.NANOSECONDS)));
    }

    /** Waits for a future, which the call's deadline completes. */
    static <A> A await(CompletableFuture<A> answer) {
        try {
            return answer.get();
        } catch (ExecutionException failed) {
            var error = error(failed.getCause());
            // The error was created on another thread; its stack trace must show the caller.
            error.fillInStackTrace();
            throw error;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new WeirException(WeirException.Kind.CANCELLED, "interrupted while waiting for the service");
        }
    }
}
