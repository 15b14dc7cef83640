package dev.weir.client;

import static dev.weir.client.Caller.await;

import java.time.Duration;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Units that are held until their real cost is known. Commit at the end of the block; if the block ends without a
 * settlement, by an exception, the reservation is cancelled:
 *
 * <pre>{@code
 * try (var reservation = weir.reserve(Check.of("tenant", "acme").withCost(500), Duration.ofMinutes(2))) {
 *     if (!reservation.decision().allowed()) {
 *         throw new TooManyRequests(reservation.decision().retryAfter());
 *     }
 *     var completion = model.complete(prompt);
 *     reservation.commit(completion.tokens());
 * }
 * }</pre>
 *
 * <p>Settling is idempotent: retry it after an outage. A reservation that is not settled ends after its ttl.
 */
public final class Reservation implements AutoCloseable {
    /**
     * Work whose real cost is known afterwards.
     *
     * @param <T> the type of its result
     * @param <X> the type of its exception
     */
    @FunctionalInterface
    public interface Work<T, X extends Exception> {
        /**
         * Does the work.
         *
         * @param reservation the units held for it; none if its decision refuses
         * @return its result
         * @throws X if it fails
         */
        T run(Reservation reservation) throws X;
    }

    private final Decision decision;
    private final String hold;
    private final Duration expiresAfter;
    private final Settler settler;
    private final AtomicBoolean settled = new AtomicBoolean();

    /** With an empty hold nothing is held: the check was refused, or the service did not decide. */
    Reservation(Decision decision, String hold, Duration expiresAfter, Settler settler) {
        this.decision = decision;
        this.hold = hold;
        this.expiresAfter = expiresAfter;
        this.settler = settler;
    }

    /**
     * Returns the decision, which says whether units are held.
     *
     * @return the decision
     */
    public Decision decision() {
        return decision;
    }

    /**
     * Settles the reservation by the reserved units.
     *
     * @return the settlement
     */
    public Settlement commit() {
        return await(settle(OptionalLong.empty()));
    }

    /**
     * Settles the reservation by the real cost: unused units are refunded, and units beyond the reserved ones are charged
     * unconditionally. Idempotent: the first settlement counts.
     *
     * @param actual 0 to 2^32
     * @return the settlement
     */
    public Settlement commit(long actual) {
        return await(settle(OptionalLong.of(actual)));
    }

    /**
     * As {@link #commit(long)}, without blocking.
     *
     * @param actual 0 to 2^32
     * @return the settlement
     */
    public CompletableFuture<Settlement> commitAsync(long actual) {
        return settler.published(settle(OptionalLong.of(actual)));
    }

    private CompletableFuture<Settlement> settle(OptionalLong actual) {
        // Also if the call fails: the end of the block must not refund units that were used.
        settled.set(true);
        return holds() ? settler.commit(hold, actual) : CompletableFuture.completedFuture(Settlement.OF_NOTHING);
    }

    /**
     * Refunds all reserved units. Idempotent: the first settlement counts.
     *
     * @return the settlement
     */
    public Settlement cancel() {
        return await(returnUnits());
    }

    /**
     * As {@link #cancel()}, without blocking.
     *
     * @return the settlement
     */
    public CompletableFuture<Settlement> cancelAsync() {
        return settler.published(returnUnits());
    }

    private CompletableFuture<Settlement> returnUnits() {
        settled.set(true);
        return holds() ? settler.cancel(hold) : CompletableFuture.completedFuture(Settlement.OF_NOTHING);
    }

    /**
     * Changes the time for which the units are held, from now on.
     *
     * @param ttl the time to hold them, 10 ms to 24 hours
     * @return the time for which they are held; {@code ttl} if nothing is held
     */
    public Duration extend(Duration ttl) {
        return holds() ? await(settler.extend(hold, ttl)) : ttl;
    }

    /** Refunds all reserved units, unless the reservation was settled. If that fails, it ends after its ttl. */
    @Override
    public void close() {
        if (!settled.get()) {
            settler.finish(returnUnits());
        }
    }

    /** Settles the reservation by the reserved units, unless it was settled. */
    void complete() {
        if (!settled.get()) {
            settler.finish(settle(OptionalLong.empty()));
        }
    }

    boolean holds() {
        return !hold.isEmpty();
    }

    String hold() {
        return hold;
    }

    Duration expiresAfter() {
        return expiresAfter;
    }
}
