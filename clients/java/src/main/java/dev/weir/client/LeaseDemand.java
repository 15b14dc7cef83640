package dev.weir.client;

/** Units asked for in a microsecond: a moving average, to which recent ones count most. */
final class LeaseDemand {
    /** The time over which demand is averaged. */
    private static final double AVERAGED_OVER = 100_000;

    private double rate;
    private long at;

    LeaseDemand(long now) {
        at = now;
    }

    /** Counts units that were asked for since the last time. */
    void count(long units, long now) {
        var passed = (double) Math.max(now - at, 0);
        rate = (rate * AVERAGED_OVER + units) / (AVERAGED_OVER + passed);
        at = now;
    }

    /** Units that will be asked for within a time, rounded down; at most as many as a request may want. */
    long within(long time) {
        return Math.min((long) (rate * time), Check.MAX_COST);
    }
}
