package dev.weir.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/**
 * Opens after {@code threshold} outages in a row, then lets one call at a time probe the service. An outage does not count
 * if its call started before the last answer: calls that were sent concurrently to one frozen replica miss their deadlines
 * together, while other replicas answer.
 */
final class CircuitBreaker {
    private static final Logger LOG = System.getLogger("dev.weir.client");

    /** The permit of one call, which started after that many answers. */
    record Permit(boolean isProbe, long answers) {}

    /** The outcome of a call. {@link #UNKNOWN} says nothing about the service. */
    enum Outcome {
        ANSWER,
        OUTAGE,
        UNKNOWN
    }

    private final int threshold;
    private final long pauseNs;
    private final LongSupplier clockNs;
    private final Consumer<BreakerState> listener;

    private volatile BreakerState state = BreakerState.CLOSED;
    private volatile int failures;
    private final AtomicLong answers = new AtomicLong();
    private long openedAtNs;

    /** With a threshold of 0 the circuit breaker never opens. */
    CircuitBreaker(int threshold, Duration pause, LongSupplier clockNs, Consumer<BreakerState> listener) {
        this.threshold = threshold;
        this.pauseNs = pause.toNanos();
        this.clockNs = clockNs;
        this.listener = listener;
    }

    BreakerState state() {
        return state;
    }

    /** Returns empty if the call may not be sent. The permit of each call that is sent must be passed to {@link #record}. */
    Optional<Permit> admit() {
        return state == BreakerState.CLOSED ? permit(false) : admitProbe();
    }

    private synchronized Optional<Permit> admitProbe() {
        if (state == BreakerState.CLOSED) {
            return permit(false);
        }
        if (state == BreakerState.HALF_OPEN || clockNs.getAsLong() - openedAtNs < pauseNs) {
            return Optional.empty();
        }
        change(BreakerState.HALF_OPEN);
        return permit(true);
    }

    private Optional<Permit> permit(boolean isProbe) {
        return Optional.of(new Permit(isProbe, answers.get()));
    }

    void record(Permit permit, Outcome outcome) {
        switch (outcome) {
            case OUTAGE -> failed(permit);
            case UNKNOWN -> abandoned(permit);
            case ANSWER -> {
                answers.incrementAndGet();
                if (failures > 0 || state != BreakerState.CLOSED) {
                    succeeded();
                }
            }
        }
    }

    private synchronized void succeeded() {
        failures = 0;
        if (state != BreakerState.CLOSED) {
            change(BreakerState.CLOSED);
        }
    }

    private synchronized void failed(Permit permit) {
        if (permit.answers() != answers.get()) {
            return;
        }
        failures = Math.min(failures + 1, threshold);
        // A call that was sent before the circuit breaker opened must not delay the next probe.
        var opens = state == BreakerState.HALF_OPEN && permit.isProbe()
                || state == BreakerState.CLOSED && failures == threshold;
        if (threshold > 0 && opens) {
            openedAtNs = clockNs.getAsLong();
            change(BreakerState.OPEN);
        }
    }

    /** If the call was the probe, the next call is. */
    private synchronized void abandoned(Permit permit) {
        // After an answer another call may be the probe.
        var isCurrent = permit.answers() == answers.get();
        if (state == BreakerState.HALF_OPEN && permit.isProbe() && isCurrent) {
            change(BreakerState.OPEN);
        }
    }

    private void change(BreakerState next) {
        state = next;
        try {
            listener.accept(next);
        } catch (RuntimeException | Error failed) {
            // The permit of a probe must not be lost with it: no later call would probe.
            LOG.log(Level.WARNING, "Telemetry.breakerChanged has failed", failed);
        }
    }
}
