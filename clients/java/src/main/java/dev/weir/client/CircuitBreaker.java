package dev.weir.client;

import java.time.Duration;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/** Opens after {@code threshold} outages in a row, then lets one call at a time probe the service. */
final class CircuitBreaker {
    /** Whether a call may be sent, and as what. */
    enum Permit {
        NONE,
        CALL,
        PROBE
    }

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

    /** Returns whether a call may be sent. The permit of each call that is sent must be passed to {@link #record}. */
    Permit admit() {
        return state == BreakerState.CLOSED ? Permit.CALL : admitProbe();
    }

    private synchronized Permit admitProbe() {
        if (state == BreakerState.CLOSED) {
            return Permit.CALL;
        }
        if (state == BreakerState.HALF_OPEN || clockNs.getAsLong() - openedAtNs < pauseNs) {
            return Permit.NONE;
        }
        change(BreakerState.HALF_OPEN);
        return Permit.PROBE;
    }

    void record(Permit permit, Outcome outcome) {
        switch (outcome) {
            case OUTAGE -> failed(permit);
            case UNKNOWN -> abandoned(permit);
            case ANSWER -> {
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
        failures = Math.min(failures + 1, threshold);
        // A call that was sent before the circuit breaker opened must not delay the next probe.
        var opens = state == BreakerState.HALF_OPEN && permit == Permit.PROBE
                || state == BreakerState.CLOSED && failures == threshold;
        if (threshold > 0 && opens) {
            openedAtNs = clockNs.getAsLong();
            change(BreakerState.OPEN);
        }
    }

    /** If the call was the probe, the next call is. */
    private synchronized void abandoned(Permit permit) {
        if (state == BreakerState.HALF_OPEN && permit == Permit.PROBE) {
            change(BreakerState.OPEN);
        }
    }

    private void change(BreakerState next) {
        state = next;
        listener.accept(next);
    }
}
