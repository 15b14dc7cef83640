package dev.weir.client;

import dev.weir.client.LeaseMessages.Answer;
import dev.weir.client.LeaseMessages.AskService;
import dev.weir.client.LeaseMessages.Refuse;
import dev.weir.client.LeaseMessages.Request;
import io.grpc.Deadline;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import weir.v1.Weir.CheckResponse;
import weir.v1.Weir.LeaseResponse;

/** Decides checks of hot keys with units that this client leases. */
final class Leases {
    /** Checks of further keys are ordinary checks. */
    private static final int MAX_LEASES = 10_000;
    private static final long TICK_MS = 20;
    /** The time that the timer may take to close the stream, after the answers. */
    private static final Duration CLOSING = Duration.ofSeconds(1);
    /** Idle leases are dropped once in this many ticks. */
    private static final int SWEEP = 5;

    private final Caller caller;
    private final LeaseStream stream;
    private final ScheduledExecutorService timer;
    private final long epochNs = System.nanoTime();
    private final ConcurrentHashMap<LeaseKey, Lease> table = new ConcurrentHashMap<>();
    private final AtomicBoolean isTicking = new AtomicBoolean();
    /** Used only by the timer's thread. */
    private int ticks;
    private volatile boolean isClosed;

    Leases(Caller caller, LeaseStream stream, ScheduledExecutorService timer) {
        this.caller = caller;
        this.stream = stream;
        this.timer = timer;
    }

    /** The next step of a check. */
    sealed interface Step permits Decided, Asks, Ordinary {}

    /** Decided by the lease. */
    record Decided(Decision decision) implements Step {}

    /** By the lease's request to the service. */
    record Asks(Lease lease, Request request, long sent) implements Step {}

    /** By an ordinary check. If the check has a lease, a refusal is passed to it. */
    record Ordinary(Optional<Lease> lease, long sent) implements Step {
        static final Ordinary ALONE = new Ordinary(Optional.empty(), 0);
    }

    private long now() {
        return TimeUnit.NANOSECONDS.toMicros(System.nanoTime() - epochNs);
    }

    /** Decides a check with leased units, without a lock, or returns the next step. */
    Step decide(Check check) {
        var key = check.leaseKey();
        var lease = table.get(key);
        var decision = lease == null ? null : spend(lease, check.cost(), now());
        if (decision != null) {
            return new Decided(decision);
        }
        for (;;) {
            lease = lease == null ? insert(key) : lease;
            if (lease == null) {
                return Ordinary.ALONE;
            }
            synchronized (lease) {
                if (!lease.isDropped) {
                    return decideLocked(lease, check.cost());
                }
            }
            lease = null;
        }
    }

    /** Decides a check with leased units. Returns null if the balance cannot pay. */
    private Decision spend(Lease lease, long cost, long now) {
        var left = lease.balance.spend(cost, now);
        if (left == LeaseBalance.SHORT) {
            return null;
        }
        if (lease.balance.isLow(left, now)) {
            synchronized (lease) {
                lease.machine.onLow(now).ifPresent(request -> send(lease, request));
            }
        }
        return Decision.leased(left);
    }

    private Step decideLocked(Lease lease, long cost) {
        var now = now();
        // An answer may have arrived while this check waited for the lock.
        var decision = spend(lease, cost, now);
        if (decision != null) {
            return new Decided(decision);
        }
        var outcome = lease.machine.onShortage(cost, now);
        if (outcome instanceof Refuse refuse) {
            var retryAfter = lease.retryAfter(cost, refuse.retryAfter(), now);
            return new Decided(Decision.heldOff(Duration.of(retryAfter, ChronoUnit.MICROS)));
        }
        return outcome instanceof AskService asks
                ? new Asks(lease, asks.request(), now)
                : new Ordinary(Optional.of(lease), now);
    }

    /** Finds or creates the lease of a key; null if the table is full or the client is closed. */
    private Lease insert(LeaseKey key) {
        if (isClosed || table.size() >= MAX_LEASES) {
            return null;
        }
        var lease = table.computeIfAbsent(key, Lease::new);
        keepTicking();
        return lease;
    }

    /**
     * Decides a check by the request of its lease. The answer is empty if the service does not serve it, and the check must
     * be an ordinary one.
     */
    CompletableFuture<Optional<CheckResponse>> ask(Asks step, Check check, Deadline deadline) {
        return send(step.lease, step.request, check.request().getSummaryOnly(), deadline)
                .thenApply(answer -> answer.map(LeaseResponse::getDecision));
    }

    /** Passes a refused ordinary check to its lease. */
    void refused(Ordinary step, long cost, CheckResponse decision) {
        step.lease.ifPresent(lease -> {
            synchronized (lease) {
                var now = now();
                lease.machine.checked(cost, step.sent, now);
                lease.refused(cost, decision, now);
            }
        });
    }

    /** Sends a request for which no check waits. The caller must hold the lease's lock. */
    private CompletableFuture<Optional<LeaseResponse>> send(Lease lease, Request request) {
        return send(lease, request, true, Caller.after(lease.timeout()));
    }

    private CompletableFuture<Optional<LeaseResponse>> send(
            Lease lease, Request request, boolean summaryOnly, Deadline deadline) {
        return caller.protect(deadline, () -> stream.send(lease.message(request, summaryOnly), deadline), Optional::isPresent)
                .whenComplete((answer, failure) -> tell(lease, request, failure == null ? answer : null));
    }

    /** Passes an answer to the state machine: null for an error, empty if the service rejects the stream of leases. */
    private void tell(Lease lease, Request request, Optional<LeaseResponse> answer) {
        synchronized (lease) {
            var now = now();
            var isServed = answer != null && (answer.isPresent() || lease.machine.ttl() == 0);
            if (!isServed) {
                lease.machine.lost(request.lease(), request.sequence(), now);
                return;
            }
            answer.ifPresent(response -> lease.heard(request.cost(), response, now));
            // An empty answer counts like the answer of a key that cannot be leased: its terms are not requested again for
            // a second.
            var read = answer.map(Lease::answer)
                    .orElse(new Answer(request.lease(), request.sequence(), false, Optional.empty(), Optional.empty()));
            lease.machine.answered(read, now).ifPresent(givesBack -> send(lease, givesBack));
        }
    }

    /** Ticks as long as there are leases. */
    private void keepTicking() {
        if (isTicking.compareAndSet(false, true)) {
            timer.schedule(this::tick, TICK_MS, TimeUnit.MILLISECONDS);
        }
    }

    private void tick() {
        ticks++;
        for (var lease : table.values()) {
            synchronized (lease) {
                lease.machine.onTick(now()).ifPresent(request -> send(lease, request));
                if (ticks % SWEEP == 0 && lease.machine.isIdle(now())) {
                    lease.isDropped = true;
                    table.remove(lease.key);
                }
            }
        }
        isTicking.set(false);
        if (!table.isEmpty()) {
            keepTicking();
        }
    }

    /**
     * Returns all leased units to the service, and waits for the answers, at most for the timeout. Later checks are
     * ordinary checks. Called once.
     */
    void close(Duration timeout) {
        isClosed = true;
        var deadline = Caller.after(timeout);
        var answers = new ArrayList<CompletableFuture<?>>();
        for (var lease : table.values()) {
            synchronized (lease) {
                lease.isDropped = true;
                lease.machine.close(now()).ifPresent(request -> answers.add(send(lease, request, true, deadline)));
            }
        }
        table.clear();
        var ended = CompletableFuture.allOf(answers.toArray(CompletableFuture[]::new))
                .orTimeout(timeout.toMillis(), TimeUnit.MILLISECONDS)
                .handle((all, late) -> null)
                .thenRunAsync(stream::close, timer)
                // A timer that is shut down drops the task.
                .completeOnTimeout(null, timeout.plus(CLOSING).toMillis(), TimeUnit.MILLISECONDS);
        try {
            ended.get();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
