package dev.weir.client;

import static dev.weir.client.Wire.duration;

import java.time.Duration;
import weir.v1.Weir;

/**
 * One of the client's own limits, instead of the domain policy's: {@link Check#withLimits(Limit...)}. The
 * algorithms are described in the manual, <em>Algorithms</em>. Set parameters that have a default on the message:
 * {@link #of(weir.v1.Weir.Limit)}.
 */
public final class Limit {
    private final Weir.Limit message;

    private Limit(Weir.Limit message) {
        this.message = message;
    }

    /**
     * Returns a limit with all parameters of the protocol.
     *
     * @param message the protocol's message
     * @return the limit
     */
    public static Limit of(Weir.Limit message) {
        return new Limit(message);
    }

    private static Limit of(Weir.Limit.Builder message) {
        return new Limit(message.build());
    }

    /**
     * Generic cell rate algorithm: {@code burst} + 1 in one burst, then {@code count} per period, evenly.
     *
     * @param burst units beyond the first that may come in one burst
     * @param count units per period
     * @param period the period of {@code count}
     * @return the limit
     */
    public static Limit gcra(long burst, long count, Duration period) {
        return of(Weir.Limit.newBuilder()
                .setGcra(Weir.Gcra.newBuilder().setBurst(burst).setCount(count).setPeriod(duration(period))));
    }

    /**
     * {@code capacity} in one burst, refilled by {@code count} per period.
     *
     * @param capacity units that a full bucket holds
     * @param count units that flow in per period
     * @param period the period of {@code count}
     * @return the limit
     */
    public static Limit tokenBucket(long capacity, long count, Duration period) {
        return of(Weir.Limit.newBuilder()
                .setTokenBucket(
                        Weir.TokenBucket.newBuilder().setCapacity(capacity).setCount(count).setPeriod(duration(period))));
    }

    /**
     * The leaky bucket as a meter: units leave at each tick, and a request that does not fit into {@code size} is refused.
     *
     * @param size units that the bucket holds
     * @param dripSize units that leave at each tick
     * @param dripRate the length of a tick
     * @return the limit
     */
    public static Limit leakyBucket(long size, long dripSize, Duration dripRate) {
        return of(Weir.Limit.newBuilder()
                .setLeakyBucket(
                        Weir.LeakyBucket.newBuilder().setSize(size).setDripSize(dripSize).setDripRate(duration(dripRate))));
    }

    /**
     * The leaky bucket as a queue: requests pass evenly, and may have to wait.
     *
     * @param count units per period
     * @param period the period of {@code count}
     * @param burst units that may queue beyond the first
     * @return the limit
     */
    public static Limit leakyQueue(long count, Duration period, long burst) {
        return of(Weir.Limit.newBuilder()
                .setLeakyQueue(Weir.LeakyQueue.newBuilder().setCount(count).setPeriod(duration(period)).setBurst(burst)));
    }

    /**
     * {@code count} in each window; up to twice that in any window of this length.
     *
     * @param count units per window
     * @param period the length of a window
     * @return the limit
     */
    public static Limit fixedWindow(long count, Duration period) {
        return of(Weir.Limit.newBuilder()
                .setFixedWindow(Weir.FixedWindow.newBuilder().setCount(count).setPeriod(duration(period))));
    }

    /**
     * At most {@code count} in any window, exactly.
     *
     * @param count units in any window
     * @param period the length of the window
     * @return the limit
     */
    public static Limit slidingLog(long count, Duration period) {
        return of(Weir.Limit.newBuilder()
                .setSlidingLog(Weir.SlidingLog.newBuilder().setCount(count).setPeriod(duration(period))));
    }

    /**
     * The current window's count plus the previous one's, weighted by the part that still counts: an estimate with a small
     * state.
     *
     * @param count units per window
     * @param period the length of the window
     * @return the limit
     */
    public static Limit slidingWindow(long count, Duration period) {
        return of(Weir.Limit.newBuilder()
                .setSlidingWindow(Weir.SlidingWindow.newBuilder().setCount(count).setPeriod(duration(period))));
    }

    /**
     * At most {@code count} in any window, counted in up to 1,000 buckets.
     *
     * @param count units in any window
     * @param period the length of the window
     * @param resolution the length of a bucket
     * @return the limit
     */
    public static Limit slidingBuckets(long count, Duration period, Duration resolution) {
        return of(Weir.Limit.newBuilder()
                .setSlidingBuckets(Weir.SlidingBuckets.newBuilder()
                        .setCount(count)
                        .setPeriod(duration(period))
                        .setResolution(duration(resolution))));
    }

    /**
     * A counter that decays exponentially.
     *
     * @param max the maximum of the counter
     * @param resolution the length of a step of decay
     * @param decay the divisor at each step, 1.001 to 1e6
     * @return the limit
     */
    public static Limit decay(double max, Duration resolution, double decay) {
        return of(Weir.Limit.newBuilder()
                .setDecay(Weir.Decay.newBuilder().setMax(max).setResolution(duration(resolution)).setDecay(decay)));
    }

    /**
     * Unused permits are stored; the next request waits for the cost of this one.
     *
     * @param count units per period
     * @param period the period of {@code count}
     * @return the limit
     */
    public static Limit smoothBursty(long count, Duration period) {
        return of(Weir.Limit.newBuilder()
                .setSmoothBursty(Weir.SmoothBursty.newBuilder().setCount(count).setPeriod(duration(period))));
    }

    /**
     * As {@link #smoothBursty}, but slow after a pause and faster as it warms up.
     *
     * @param count units per period once warm
     * @param period the period of {@code count}
     * @param warmUp the time to warm up
     * @return the limit
     */
    public static Limit warmingUp(long count, Duration period, Duration warmUp) {
        return of(Weir.Limit.newBuilder()
                .setWarmingUp(
                        Weir.WarmingUp.newBuilder().setCount(count).setPeriod(duration(period)).setWarmUp(duration(warmUp))));
    }

    /**
     * {@code count} in each aligned cycle.
     *
     * @param count units per cycle
     * @param period the length of a cycle
     * @return the limit
     */
    public static Limit cycle(long count, Duration period) {
        return of(Weir.Limit.newBuilder().setCycle(Weir.Cycle.newBuilder().setCount(count).setPeriod(duration(period))));
    }

    /**
     * At most {@code max} requests at the same time, each with a slot: {@link WeirClient#slot(Check)}.
     *
     * @param max slots
     * @param ttl the time after which a slot expires that is neither released nor extended, 10 ms to 24 hours
     * @return the limit
     */
    public static Limit concurrency(long max, Duration ttl) {
        return of(Weir.Limit.newBuilder()
                .setConcurrency(Weir.Concurrency.newBuilder().setMax(max).setTtl(duration(ttl))));
    }

    /**
     * Sets the name that answers show.
     *
     * @param name its name
     * @return a limit with that name
     */
    public Limit withName(String name) {
        return of(message.toBuilder().setName(name));
    }

    /**
     * Covers the first segments of the key. Default: the whole key.
     *
     * @param segments their number
     * @return a limit of that depth
     */
    public Limit withDepth(int segments) {
        return of(message.toBuilder().setDepth(segments));
    }

    /**
     * Makes a shadow limit (dry run): evaluated and counted, but never refuses.
     *
     * @return a shadow limit
     */
    public Limit asShadow() {
        return of(message.toBuilder().setShadow(true));
    }

    Weir.Limit message() {
        return message;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Limit limit && message.equals(limit.message);
    }

    @Override
    public int hashCode() {
        return message.hashCode();
    }

    @Override
    public String toString() {
        return message.toString();
    }
}
