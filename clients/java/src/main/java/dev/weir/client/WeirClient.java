package dev.weir.client;

import static dev.weir.client.Caller.await;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CheckBatchRequest;
import weir.v1.Weir.ResetRequest;

/**
 * A client of Weir: one for the whole process. It is thread-safe, and has a connection to each replica.
 *
 * <pre>{@code
 * try (var weir = WeirClient.connect("127.0.0.1:8081")) {
 *     var decision = weir.check("user", "alex", "trade");
 *     if (!decision.allowed()) {
 *         throw new TooManyRequests(decision.retryAfter());
 *     }
 * }
 * }</pre>
 *
 * <p>Methods throw a {@link WeirException} if the service does not decide. Futures of the {@code Async} methods fail with
 * it.
 */
public final class WeirClient implements AutoCloseable {
    private final Duration deadline;
    final ScheduledThreadPoolExecutor timer = timer();
    private final Connection connection;
    private final CircuitBreaker breaker;
    private final Caller caller;
    private final Checks calls;
    private final Settler settler;
    private final Leases leases;
    private final Telemetry telemetry;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    WeirClient(WeirClientBuilder settings) {
        deadline = settings.deadline;
        connection = new Connection(settings.target, settings.credentials, settings.token, timer);
        telemetry = settings.telemetry;
        Consumer<BreakerState> listener = state -> telemetry.breakerChanged(settings.target, state);
        breaker = new CircuitBreaker(settings.breakerFailures, settings.breakerPause, System::nanoTime, listener);
        listener.accept(breaker.state());
        caller = new Caller(connection, breaker, settings.retries, settings.executor.orElseGet(WeirClient::executor));
        Optional<CheckStream> stream = settings.maxCoalesced == 0
                ? Optional.empty()
                : Optional.of(new CheckStream(connection, caller, timer, settings.retries, settings.maxCoalesced, deadline));
        settler = new Settler(caller, deadline);
        leases = new Leases(caller, new LeaseStream(connection, timer), timer);
        calls = new Checks(caller, stream, settler, telemetry, deadline, settings.onFailure, leases, settings.lease);
    }

    /**
     * Not the common pool: if that has only one thread, futures start a thread for each task. This pool needs no shutdown,
     * since its idle threads end soon.
     */
    private static Executor executor() {
        var threads = Math.max(2, Runtime.getRuntime().availableProcessors());
        return new ForkJoinPool(threads, ForkJoinPool.defaultForkJoinWorkerThreadFactory, null, true);
    }

    private static ScheduledThreadPoolExecutor timer() {
        // Tasks that are scheduled after close are dropped.
        var timer = new ScheduledThreadPoolExecutor(
                1,
                task -> {
                    var thread = new Thread(task, "weir-client-timer");
                    thread.setDaemon(true);
                    return thread;
                },
                new ThreadPoolExecutor.DiscardPolicy());
        timer.setRemoveOnCancelPolicy(true);
        return timer;
    }

    /**
     * Connects with the default settings, without waiting for the connection.
     *
     * @param target {@code host:port}, {@code unix:PATH}, {@code dns:///host:port}, or several {@code host:port} with
     *     commas; calls are balanced over all addresses
     * @return the client
     * @throws IllegalArgumentException if the target is malformed
     */
    public static WeirClient connect(String target) {
        return builder(target).build();
    }

    /**
     * Returns a builder, for other settings.
     *
     * @param target as in {@link #connect(String)}
     * @return the settings
     */
    public static WeirClientBuilder builder(String target) {
        return new WeirClientBuilder(target);
    }

    /**
     * Waits until the service answers. In a new JVM, connecting and loading classes takes longer than a check's deadline:
     * call this before the first requests.
     *
     * @param timeout the longest time to wait
     * @throws WeirException if the service does not answer in time, or rejects the client's credentials
     */
    public void awaitReady(Duration timeout) {
        // An empty batch: nothing to decide, but authenticated and answered like any call.
        await(connection.call(
                RateLimiterGrpc.getCheckBatchMethod(),
                CheckBatchRequest.getDefaultInstance(),
                Connection.until(Caller.after(timeout)).withWaitForReady()));
    }

    /**
     * Decides one unit of a key in the default domain.
     *
     * @param key the path, root first
     * @return the decision
     */
    public Decision check(String... key) {
        return check(Check.of(key));
    }

    /**
     * Decides one key: every limit on its path, in one atomic step.
     *
     * @param check the check
     * @return the decision
     */
    public Decision check(Check check) {
        var step = calls.lease(check);
        if (step instanceof Leases.Decided decided) {
            telemetry.leased(check, decided.decision());
            return decided.decision();
        }
        return await(calls.decide(check, step));
    }

    /**
     * As {@link #check(Check)}, without blocking.
     *
     * @param check the check
     * @return the decision to come
     */
    public CompletableFuture<Decision> checkAsync(Check check) {
        var step = calls.lease(check);
        if (step instanceof Leases.Decided decided) {
            telemetry.leased(check, decided.decision());
            return CompletableFuture.completedFuture(decided.decision());
        }
        return caller.published(calls.decide(check, step));
    }

    /** Returns a value after a delay. */
    <A> CompletableFuture<A> later(A value, Duration delay) {
        return delay.isZero() ? CompletableFuture.completedFuture(value) : caller.later(value, delay);
    }

    /**
     * Decides up to 1,000 checks in order, independently, in one call. An invalid check fails alone.
     *
     * @param checks the checks; the earliest of their deadlines is the call's
     * @return one result for each, in their order
     */
    public List<CheckResult> checkBatch(List<Check> checks) {
        return await(calls.decideBatch(List.copyOf(checks)));
    }

    /**
     * As {@link #checkBatch(List)}, without blocking.
     *
     * @param checks the checks
     * @return the results to come
     */
    public CompletableFuture<List<CheckResult>> checkBatchAsync(List<Check> checks) {
        return caller.published(calls.decideBatch(List.copyOf(checks)));
    }

    /**
     * Decides 1 to 32 checks of one domain together: either all are charged or none. Retried only if none of the checks
     * charges anything.
     *
     * @param checks the checks; the earliest of their deadlines is the call's
     * @return the decision
     */
    public JointDecision checkAll(List<Check> checks) {
        return await(calls.decideAll(List.copyOf(checks)));
    }

    /**
     * As {@link #checkAll(List)}, without blocking.
     *
     * @param checks the checks
     * @return the decision to come
     */
    public CompletableFuture<JointDecision> checkAllAsync(List<Check> checks) {
        return caller.published(calls.decideAll(List.copyOf(checks)));
    }

    /**
     * Decides as {@link #check(Check)} does. If the check is allowed, its cost is charged and held until the reservation is
     * settled. If it expires, its units count as spent.
     *
     * @param check the check, with the estimated cost
     * @param ttl the time to hold the units, 10 ms to 24 hours
     * @return the reservation, which holds nothing if the check was refused
     */
    public Reservation reserve(Check check, Duration ttl) {
        return reserve(check, ttl, OnExpiry.KEEP);
    }

    /**
     * Decides as {@link #check(Check)} does. If the check is allowed, its cost is charged and held until the reservation is
     * settled.
     *
     * @param check the check, with the estimated cost
     * @param ttl the time to hold the units, 10 ms to 24 hours
     * @param onExpiry the settlement if the reservation expires
     * @return the reservation, which holds nothing if the check was refused
     */
    public Reservation reserve(Check check, Duration ttl, OnExpiry onExpiry) {
        return hold(check, Optional.of(ttl), onExpiry);
    }

    private Reservation hold(Check check, Optional<Duration> ttl, OnExpiry onExpiry) {
        var made = calls.hold(check, ttl, onExpiry);
        try {
            return await(made);
        } catch (WeirException interrupted) {
            // It may still be made, unless this is the call's own failure.
            made.thenAccept(Reservation::cancelAsync);
            throw interrupted;
        }
    }

    /**
     * As {@link #reserve(Check, Duration, OnExpiry)}, without blocking. If the future is cancelled, or has a timeout, a
     * reservation that is made afterwards is cancelled.
     *
     * @param check the check, with the estimated cost
     * @param ttl the time to hold the units, 10 ms to 24 hours
     * @param onExpiry the settlement if the reservation expires
     * @return the reservation to come
     */
    public CompletableFuture<Reservation> reserveAsync(Check check, Duration ttl, OnExpiry onExpiry) {
        var made = calls.hold(check, Optional.of(ttl), onExpiry);
        var published = caller.published(made);
        published.exceptionally(failed -> {
            made.thenAccept(Reservation::cancelAsync);
            return null;
        });
        return published;
    }

    /**
     * Reserves, and runs the work. Afterwards the reservation is settled in full, unless the work has settled it; if the
     * work throws, it is cancelled.
     *
     * @param check the check, with the estimated cost
     * @param ttl the time to hold the units, longer than the work takes
     * @param work the work, which runs even if the check is refused: it must look at the decision
     * @param <T> the type of the result of the work
     * @param <X> the type of the exception of the work
     * @return the result of the work
     * @throws X if the work does
     */
    public <T, X extends Exception> T withReservation(Check check, Duration ttl, Reservation.Work<T, X> work) throws X {
        try (var reservation = reserve(check, ttl)) {
            var result = work.run(reservation);
            reservation.complete();
            return result;
        }
    }

    /**
     * Takes a slot of each concurrency limit on the path, and extends it in the background until it is closed. Other limits
     * there are charged the cost.
     *
     * @param check the check
     * @return the slot; not {@linkplain Slot#isHeld() held} if all are taken
     */
    public Slot slot(Check check) {
        return slot(check, Optional.empty());
    }

    /**
     * As {@link #slot(Check)}, with a ttl shorter than the ttl of the limits.
     *
     * @param check the check
     * @param ttl the time after which the slot is free if the process dies
     * @return the slot; not {@linkplain Slot#isHeld() held} if all are taken
     */
    public Slot slot(Check check, Duration ttl) {
        return slot(check, Optional.of(ttl));
    }

    private Slot slot(Check check, Optional<Duration> ttl) {
        var askedNs = System.nanoTime();
        return new Slot(hold(check, ttl, OnExpiry.KEEP), ttl, settler, timer, askedNs);
    }

    /**
     * Removes the state of a key: its next check finds it full, as if never used.
     *
     * @param domain the domain; empty for the default domain
     * @param key the path, root first
     * @param subtree whether to remove the states of all keys below it, too
     * @return whether there was any
     */
    public boolean reset(String domain, List<String> key, boolean subtree) {
        return await(forget(domain, key, subtree));
    }

    /**
     * As {@link #reset(String, List, boolean)}, without blocking.
     *
     * @param domain the domain; empty for the default domain
     * @param key the path, root first
     * @param subtree whether to remove the states of all keys below it, too
     * @return whether there was any
     */
    public CompletableFuture<Boolean> resetAsync(String domain, List<String> key, boolean subtree) {
        return caller.published(forget(domain, key, subtree));
    }

    private CompletableFuture<Boolean> forget(String domain, List<String> key, boolean subtree) {
        var request = ResetRequest.newBuilder().setDomain(domain).addAllKey(key).setSubtree(subtree).build();
        return caller.call(RateLimiterGrpc.getResetMethod(), request, Caller.after(deadline), true)
                // Older servers set only existed, which is about the key itself.
                .thenApply(response -> response.hasRemoved() ? response.getRemoved() : response.getExisted());
    }

    /**
     * Returns the state of the circuit breaker.
     *
     * @return its state
     */
    public BreakerState breakerState() {
        return breaker.state();
    }

    /**
     * Returns leased units to the service, within the deadline of a call, ends all calls and closes all connections.
     * Repeated calls do nothing.
     */
    @Override
    public void close() {
        if (!isClosed.compareAndSet(false, true)) {
            return;
        }
        leases.close(deadline);
        timer.shutdownNow();
        connection.close();
    }
}
