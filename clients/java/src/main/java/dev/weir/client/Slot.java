package dev.weir.client;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * A slot of the concurrency limits on a key's path, which is extended in the background and given back when it is closed:
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
 * <p>Should the process die, the slot is free after its time to live.
 */
public final class Slot implements AutoCloseable {
    private final Reservation reservation;
    private final Optional<Duration> ttl;
    private final Settler settler;
    private final ScheduledExecutorService timer;
    private final CompletableFuture<Void> lost = new CompletableFuture<>();
    /** Otherwise there is no slot to extend, or the shared store is down. */
    private final boolean isExtended;
    private volatile boolean closed;
    private volatile long expiresAtNs;

    /** The reservation was asked for at that time: the slot is held from some moment after it. */
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

    /** Extends at a third of the time, so that one lost answer costs nothing. */
    private void heldFor(Duration time, long askedNs) {
        expiresAtNs = askedNs + time.toNanos();
        extendAfter(time.toNanos() / 3, time.toNanos() / 6);
    }

    private long leftNs() {
        return expiresAtNs - System.nanoTime();
    }

    private void extendAfter(long delayNs, long pauseNs) {
        if (!closed) {
            timer.schedule(() -> extend(pauseNs), Math.min(delayNs, leftNs()), TimeUnit.NANOSECONDS);
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
        // An answer after it is lost is of no use.
        var timeout = Duration.ofNanos(Math.min(pauseNs, leftNs));
        settler.extend(reservation.hold(), ttl, timeout).whenComplete((time, failure) -> {
            if (failure == null) {
                heldFor(time, askedNs);
            } else if (Caller.error(failure).kind() == WeirException.Kind.NOT_FOUND) {
                lost.complete(null);
            } else {
                extendAfter(pauseNs, pauseNs);
            }
        });
    }

    /**
     * The decision.
     *
     * @return whether the slot was free
     */
    public Decision decision() {
        return reservation.decision();
    }

    /**
     * Whether the slot was free, and is not lost.
     *
     * @return whether the caller may work
     */
    public boolean isHeld() {
        return decision().allowed() && !lost.isDone() && !(isExtended && leftNs() <= 0);
    }

    /**
     * Completes if the slot is lost while the work goes on: it could not be extended in time, and another holder may have
     * it. Work that must not go on then stops.
     *
     * @return completes when it is lost
     */
    public CompletableFuture<Void> whenLost() {
        return settler.published(lost);
    }

    /** Gives the slot back, and charges other limits on the path. Should that fail, it is free after its time to live. */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (reservation.holds() && isHeld()) {
            settler.finish(settler.commit(reservation.hold(), OptionalLong.empty()));
        }
    }
}
