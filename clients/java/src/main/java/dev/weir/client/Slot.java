package dev.weir.client;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * A slot of each concurrency limit on the path. It is extended in the background until it is closed, which releases it:
 *
 * <pre>{@code
 * try (var slot = weir.slot(Check.of("exports", "alex"))) {
 *     if (!slot.isHeld()) {
 *         throw new TooManyExports();
 *     }
 *     export();
 * }
 * }</pre>
 *
 * <p>If the process dies, the slot is free after its ttl.
 */
public final class Slot implements AutoCloseable {
    private final Reservation reservation;
    private final Optional<Duration> ttl;
    private final Settler settler;
    private final ScheduledExecutorService timer;
    private final CompletableFuture<Void> lost = new CompletableFuture<>();
    /** False if there is no slot to extend, or the service decided without its shared store. */
    private final boolean isExtended;
    private volatile boolean closed;
    /** The next extension. Null if there is none. */
    private volatile Future<?> extension;
    private volatile long expiresAtNs;

    /** The reservation was requested at {@code askedNs}: the ttl starts after this moment. */
    Slot(Reservation reservation, Optional<Duration> ttl, Settler settler, ScheduledExecutorService timer, long askedNs) {
        this.reservation = reservation;
        this.ttl = ttl;
        this.settler = settler;
        this.timer = timer;
        isExtended = !reservation.expiresAfter().isZero() && !reservation.decision().degraded();
        if (isExtended) {
            heldFor(reservation.expiresAfter(), askedNs);
        }
    }

    /**
     * Extends after a third of the time since the request, each attempt bounded by a sixth, so that after an attempt that hangs two more are
     * possible.
     */
    private void heldFor(Duration time, long askedNs) {
        expiresAtNs = askedNs + time.toNanos();
        extendAfter(time.toNanos() / 3 - (System.nanoTime() - askedNs), time.toNanos() / 6);
    }

    private long leftNs() {
        return expiresAtNs - System.nanoTime();
    }

    private void extendAfter(long delayNs, long pauseNs) {
        extension = timer.schedule(() -> extend(pauseNs), Math.min(delayNs, leftNs()), TimeUnit.NANOSECONDS);
        if (closed) {
            cancelExtension();
        }
    }

    /** Otherwise the timer would keep the slot for a third of its time. */
    private void cancelExtension() {
        var next = extension;
        if (next != null) {
            next.cancel(false);
        }
    }

    private void extend(long pauseNs) {
        if (closed) {
            return;
        }
        var askedNs = System.nanoTime();
        var leftNs = expiresAtNs - askedNs;
        if (leftNs <= 0) {
            lost.complete(null);
            return;
        }
        // An answer after the slot is lost is useless.
        var timeout = Duration.ofNanos(Math.min(pauseNs, leftNs));
        settler.extend(reservation.hold(), ttl, timeout).whenComplete((time, failure) -> {
            if (failure == null) {
                heldFor(time, askedNs);
            } else if (Caller.error(failure).kind() != WeirException.Kind.NOT_FOUND) {
                extendAfter(pauseNs, pauseNs);
            } else if (!closed) {
                // Otherwise it was released.
                lost.complete(null);
            }
        });
    }

    /**
     * Returns the decision.
     *
     * @return whether the slot was free
     */
    public Decision decision() {
        return reservation.decision();
    }

    /**
     * Returns whether the slot was free, and is not lost.
     *
     * @return whether the slot is held
     */
    public boolean isHeld() {
        return decision().allowed() && !lost.isDone() && !(isExtended && leftNs() <= 0);
    }

    /**
     * Returns a future that completes when the slot is lost: it could not be extended in time, and another client may hold
     * it. Stop the work then.
     *
     * @return completes when the slot is lost
     */
    public CompletableFuture<Void> whenLost() {
        return settler.published(lost);
    }

    /** Releases the slot; other limits on the path stay charged. If that fails, it is free after its ttl. */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        cancelExtension();
        if (reservation.holds() && isHeld()) {
            settler.finish(settler.commit(reservation.hold(), OptionalLong.empty()));
        }
    }
}
