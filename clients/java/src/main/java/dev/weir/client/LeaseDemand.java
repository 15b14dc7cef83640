package dev.weir.client;

/** A moving average of the requested units per µs, weighted towards recent checks. */
final class LeaseDemand {
    /** The averaging time, in µs. */
    private static final double AVERAGED_OVER = 100_000;

    private double rate;
    private long at;

    LeaseDemand(long now) {
        at = now;
    }

    /** Adds units that were requested since the last call. */
    void count(long units, long now) {
        var passed = (double) Math.max(now - at, 0);
        rate = (rate * AVERAGED_OVER + units) / (AVERAGED_OVER + passed);
        at = now;
    }

    /** Returns the expected demand in a time (µs): units, rounded down, at most {@link Check#MAX_COST}. */
    long within(long time) {
        return Math.min((long) (rate * time), Check.MAX_COST);
    }
}
