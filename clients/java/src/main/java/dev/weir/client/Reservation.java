package dev.weir.client;

import static dev.weir.client.Caller.await;

import java.time.Duration;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Units that are charged and held until their real cost is known. Commit at the end of the block; a block that ends
 * without, by an exception, gives everything back:
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
 * <p>Settling is idempotent: repeat it where it fails with an outage. A reservation that is not settled ends after its
 * time to live.
 */
public final class Reservation implements AutoCloseable {
    /**
     * Work whose real cost is known afterwards.
     *
     * @param <T> what it returns
     * @param <X> what it throws
     */
    @FunctionalInterface
    public interface Work<T, X extends Exception> {
        /**
         * Does it.
         *
         * @param reservation what is held for it; nothing, if its decision refuses
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

    /** Without a hold nothing is held: it was refused, or the service did not answer. */
    Reservation(Decision decision, String hold, Duration expiresAfter, Settler settler) {
        this.decision = decision;
        this.hold = hold;
        this.expiresAfter = expiresAfter;
        this.settler = settler;
    }

    /**
     * Whether the units are held.
     *
     * @return the decision
     */
    public Decision decision() {
        return decision;
    }

    /**
     * The real cost is what was reserved.
     *
     * @return how it was settled
     */
    public Settlement commit() {
        return await(settle(OptionalLong.empty()));
    }

    /**
     * Charges the real cost: what was not used is given back, and more is charged in any case.
     *
     * @param actual 0 to 2^32
     * @return how it was settled
     */
    public Settlement commit(long actual) {
        return await(settle(OptionalLong.of(actual)));
    }

    /**
     * As {@link #commit(long)}, without blocking.
     *
     * @param actual 0 to 2^32
     * @return how it was settled
     */
    public CompletableFuture<Settlement> commitAsync(long actual) {
        return settler.published(settle(OptionalLong.of(actual)));
    }

    private CompletableFuture<Settlement> settle(OptionalLong actual) {
        // Also if the call fails: what was used must not be given back when the block ends.
        settled.set(true);
        return holds() ? settler.commit(hold, actual) : CompletableFuture.completedFuture(Settlement.OF_NOTHING);
    }

    /**
     * Gives everything back.
     *
     * @return how it was settled
     */
    public Settlement cancel() {
        return await(giveBack());
    }

    /**
     * As {@link #cancel()}, without blocking.
     *
     * @return how it was settled
     */
    public CompletableFuture<Settlement> cancelAsync() {
        return settler.published(giveBack());
    }

    private CompletableFuture<Settlement> giveBack() {
        settled.set(true);
        return holds() ? settler.cancel(hold) : CompletableFuture.completedFuture(Settlement.OF_NOTHING);
    }

    /**
     * Holds it for longer, or shorter.
     *
     * @param ttl how long from now on
     * @return for how long it is held
     */
    public Duration extend(Duration ttl) {
        return holds() ? await(settler.extend(hold, ttl)) : ttl;
    }

    /** Gives everything back, unless it was settled. Should that fail, the reservation ends after its time to live. */
    @Override
    public void close() {
        if (!settled.get()) {
            settler.finish(giveBack());
        }
    }

    /** Charges what was reserved, unless it was settled. */
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
