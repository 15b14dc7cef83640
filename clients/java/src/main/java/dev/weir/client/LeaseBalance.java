package dev.weir.client;

import java.util.concurrent.atomic.AtomicLong;

/**
 * The units that may be spent until a deadline. Spending takes no lock. Times are microseconds of the client's monotonic
 * clock.
 */
final class LeaseBalance {
    /** Returned by {@link #spend}: the balance cannot pay. Call {@link LeaseMachine#onShortage}. */
    static final long SHORT = -1;

    private final AtomicLong units = new AtomicLong();
    private volatile long deadline;
    /** A renewal is due if fewer units than this are left. */
    private volatile long low = Long.MIN_VALUE;
    /** A renewal is due from this moment on. */
    private volatile long renewAt = Long.MAX_VALUE;

    /**
     * Takes {@code cost} units and returns the units left, or {@link #SHORT}. A caller that is delayed after it has read its
     * clock may spend units that are burnt meanwhile. The service has charged them by then.
     */
    long spend(long cost, long now) {
        if (cost <= 0 || isOver(now)) {
            return SHORT;
        }
        for (;;) {
            var held = units.get();
            if (held < cost) {
                return SHORT;
            }
            if (units.compareAndSet(held, held - cost)) {
                return held - cost;
            }
        }
    }

    /** Returns whether {@link LeaseMachine#onLow} must be called after a spend that left that many units. */
    boolean isLow(long left, long now) {
        return left < low || isDue(now);
    }

    long units() {
        return units.get();
    }

    /** Takes all units out and returns them. */
    long empty() {
        return units.getAndSet(0);
    }

    /** Takes all units above {@code kept} out and returns them. */
    long takeAbove(long kept) {
        return Math.max(0, units.getAndUpdate(held -> Math.min(held, kept)) - kept);
    }

    /** Adds units and sets the deadline of all units. */
    void fill(long added, long deadline) {
        // A thread that sees the new deadline must also see that burnt units were taken out before.
        this.deadline = deadline;
        units.addAndGet(added);
    }

    boolean isOver(long now) {
        return now >= deadline;
    }

    boolean isDue(long now) {
        return now >= renewAt;
    }

    /** Sets when a renewal is due. */
    void watch(long low, long renewAt) {
        this.low = low;
        this.renewAt = renewAt;
    }

    /** Makes no renewal due. */
    void unwatch() {
        watch(Long.MIN_VALUE, Long.MAX_VALUE);
    }
}
