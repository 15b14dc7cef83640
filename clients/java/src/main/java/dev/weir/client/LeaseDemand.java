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

    /** Units that will be asked for within a time, rounded down. */
    long within(long time) {
        return (long) (rate * time);
    }
}
