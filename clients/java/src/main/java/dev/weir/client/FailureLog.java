package dev.weir.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Logs failures with their number so far, each kind at most once in ten seconds. */
final class FailureLog {
    private static final Logger LOG = System.getLogger("dev.weir.client");
    private static final long INTERVAL_NS = TimeUnit.SECONDS.toNanos(10);

    private final String outage;
    private final String fault;
    private final Map<WeirException.Kind, Tally> tallies = new EnumMap<>(WeirException.Kind.class);

    private static final class Tally {
        long count;
        long nextLineNs = System.nanoTime();
    }

    /** The messages for outages and cancelled calls, and for a wrong configuration. */
    FailureLog(String outage, String fault) {
        this.outage = outage;
        this.fault = fault;
    }

    void add(WeirException error) {
        var count = count(error.kind());
        if (count > 0) {
            var isTemporary = error.kind().isOutage() || error.kind() == WeirException.Kind.CANCELLED;
            LOG.log(
                    isTemporary ? Level.WARNING : Level.ERROR,
                    "{0}: {1} ({2}); {3} so far",
                    isTemporary ? outage : fault,
                    error.kind(),
                    error.getMessage(),
                    count);
        }
    }

    /** Counts a failure. Returns the number so far, or 0 if no log line is due. */
    private synchronized long count(WeirException.Kind kind) {
        var tally = tallies.computeIfAbsent(kind, any -> new Tally());
        tally.count++;
        var now = System.nanoTime();
        if (now - tally.nextLineNs < 0) {
            return 0;
        }
        tally.nextLineNs = now + INTERVAL_NS;
        return tally.count;
    }
}
