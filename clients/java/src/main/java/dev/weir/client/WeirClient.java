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
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CheckBatchRequest;
import weir.v1.Weir.ResetRequest;

/**
 * A client of a Weir service. One for a process is enough: it is thread safe, and holds a connection to each replica.
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
 * <p>Methods throw a {@link WeirException} where the service does not answer. Futures of the {@code Async} methods fail with it.
 */
public final class WeirClient implements AutoCloseable {
    private final Duration deadline;
    private final ScheduledThreadPoolExecutor timer = timer();
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
        breaker = new CircuitBreaker(
                settings.breakerFailures, settings.breakerPause, System::nanoTime, settings.telemetry::breakerChanged);
        caller = new Caller(connection, breaker, settings.retries, settings.executor.orElseGet(WeirClient::executor));
        Optional<CheckStream> stream = settings.maxCoalesced == 0
                ? Optional.empty()
                : Optional.of(new CheckStream(connection, caller, timer, settings.retries, settings.maxCoalesced, deadline));
        settler = new Settler(caller, deadline);
        telemetry = settings.telemetry;
        leases = new Leases(caller, new LeaseStream(connection, timer), timer);
        calls = new Checks(caller, stream, settler, telemetry, deadline, settings.onFailure, leases, settings.lease);
    }

    /**
     * Not the common pool: where that has one thread, futures start a thread for each task instead. It needs no end, since its
     * threads do not outlive their work for long.
     */
    private static Executor executor() {
        var threads = Math.max(2, Runtime.getRuntime().availableProcessors());
        return new ForkJoinPool(threads, ForkJoinPool.defaultForkJoinWorkerThreadFactory, null, true);
    }

    private static ScheduledThreadPoolExecutor timer() {
        // After close there is nothing left to do in time.
        return new ScheduledThreadPoolExecutor(
                1,
                task -> {
                    var thread = new Thread(task, "weir-client-timer");
                    thread.setDaemon(true);
                    return thread;
                },
                new ThreadPoolExecutor.DiscardPolicy());
    }

    /**
     * A client with the default settings.
     *
     * @param target {@code host:port}, {@code unix:PATH}, {@code dns:///host:port}, or several {@code host:port} with commas;
     *     calls are balanced over all addresses
     * @return the client, which starts to connect
     */
    public static WeirClient connect(String target) {
        return builder(target).build();
    }

    /**
     * A client with other settings.
     *
     * @param target as in {@link #connect(String)}
     * @return the settings
     */
    public static WeirClientBuilder builder(String target) {
        return new WeirClientBuilder(target);
    }

    /**
     * Waits until the service answers. A new JVM takes longer to connect and to load its classes than a check may take:
     * call this before the first requests.
     *
     * @param timeout how long to wait
     * @throws WeirException if the service does not answer in time, or rejects the client's credentials
     */
    public void awaitReady(Duration timeout) {
        // Nothing to decide, but answered as any call is.
        await(connection.call(
                RateLimiterGrpc.getCheckBatchMethod(),
                CheckBatchRequest.getDefaultInstance(),
                Connection.until(Caller.after(timeout)).withWaitForReady()));
    }

    /**
     * Checks one unit in the default domain.
     *
     * @param key the path, root first
     * @return the decision
     */
    public Decision check(String... key) {
        return check(Check.of(key));
    }

    /**
     * Checks one key: every limit on its path, in one step.
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

    /**
     * Decides up to 1,000 checks in order, each by itself.
     *
     * @param checks the checks; the earliest of their deadlines holds for all
     * @return one result for each
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
     * Decides 1 to 32 checks of one domain together: either all are charged or none.
     *
     * @param checks the checks; the earliest of their deadlines holds for all
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
     * Charges the estimated cost of a check and holds it until the real cost is known.
     *
     * @param check what to hold
     * @param ttl how long to hold it, 10 ms to 24 hours; what is not settled then counts as spent
     * @return the reservation, which holds nothing if the check was refused
     */
    public Reservation reserve(Check check, Duration ttl) {
        return reserve(check, ttl, OnExpiry.KEEP);
    }

    /**
     * Charges the estimated cost of a check and holds it until the real cost is known.
     *
     * @param check what to hold
     * @param ttl how long to hold it, 10 ms to 24 hours
     * @param onExpiry what becomes of it when it is not settled then
     * @return the reservation, which holds nothing if the check was refused
     */
    public Reservation reserve(Check check, Duration ttl, OnExpiry onExpiry) {
        return await(calls.hold(check, Optional.of(ttl), onExpiry));
    }

    /**
     * As {@link #reserve(Check, Duration, OnExpiry)}, without blocking.
     *
     * @param check what to hold
     * @param ttl how long to hold it, 10 ms to 24 hours
     * @param onExpiry what becomes of it when it is not settled then
     * @return the reservation to come
     */
    public CompletableFuture<Reservation> reserveAsync(Check check, Duration ttl, OnExpiry onExpiry) {
        return caller.published(calls.hold(check, Optional.of(ttl), onExpiry));
    }

    /**
     * Reserves around work: what it does not settle itself is charged in full when it ends, and given back if it throws.
     *
     * @param check what to hold
     * @param ttl how long to hold it, longer than the work takes
     * @param work the work, which must look at the decision
     * @param <T> what the work returns
     * @param <X> what the work throws
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
     * Takes a slot of each concurrency limit on the key's path, and extends it in the background until it is closed.
     *
     * @param check the check
     * @return the slot; not {@linkplain Slot#isHeld() held} if all are taken
     */
    public Slot slot(Check check) {
        return slot(check, Optional.empty());
    }

    /**
     * As {@link #slot(Check)}, for a time that is shorter than that of the limits.
     *
     * @param check the check
     * @param ttl how long the slot outlives a holder that has died
     * @return the slot; not {@linkplain Slot#isHeld() held} if all are taken
     */
    public Slot slot(Check check, Duration ttl) {
        return slot(check, Optional.of(ttl));
    }

    private Slot slot(Check check, Optional<Duration> ttl) {
        var askedNs = System.nanoTime();
        return new Slot(await(calls.hold(check, ttl, OnExpiry.KEEP)), ttl, settler, timer, askedNs);
    }

    /**
     * Forgets what a key has spent.
     *
     * @param domain the domain; empty for the default domain
     * @param key the path, root first
     * @param subtree whether to forget all keys below it, too
     * @return whether there was any state
     */
    public boolean reset(String domain, List<String> key, boolean subtree) {
        return await(forget(domain, key, subtree));
    }

    /**
     * As {@link #reset(String, List, boolean)}, without blocking.
     *
     * @param domain the domain; empty for the default domain
     * @param key the path, root first
     * @param subtree whether to forget all keys below it, too
     * @return whether there was any state
     */
    public CompletableFuture<Boolean> resetAsync(String domain, List<String> key, boolean subtree) {
        return caller.published(forget(domain, key, subtree));
    }

    private CompletableFuture<Boolean> forget(String domain, List<String> key, boolean subtree) {
        var request = ResetRequest.newBuilder().setDomain(domain).addAllKey(key).setSubtree(subtree).build();
        return caller.call(RateLimiterGrpc.getResetMethod(), request, Caller.after(deadline), true)
                // Older services tell only of the key itself.
                .thenApply(response -> response.hasRemoved() ? response.getRemoved() : response.getExisted());
    }

    /**
     * The state of the circuit breaker.
     *
     * @return its state
     */
    public BreakerState breakerState() {
        return breaker.state();
    }

    /** Gives leases back, within the deadline of a call, ends all calls and closes all connections. Further calls of it do nothing. */
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
