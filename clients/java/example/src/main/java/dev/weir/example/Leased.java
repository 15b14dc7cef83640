package dev.weir.example;

import dev.weir.client.Check;
import dev.weir.client.OnFailure;
import dev.weir.client.WeirClient;
import dev.weir.client.WeirException;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/**
 * Checks a key as fast as it can, mostly by a lease, and prints for every allowed check the microseconds before and after it:
 * {@code Leased 127.0.0.1:8081,127.0.0.1:8082 "" api/alex 10}.
 */
public class Leased {
    private static final long REFUSED_PAUSE_NS = Duration.ofMillis(1).toNanos();
    private static final long FLUSH_NS = Duration.ofMillis(50).toNanos();

    private static long wallUs() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 4) {
            throw new IllegalArgumentException("usage: Leased TARGET DOMAIN KEY SECONDS");
        }
        var check = Check.of(arguments[2].split("/")).withDomain(arguments[1]);
        var lasts = Duration.ofNanos((long) (Double.parseDouble(arguments[3]) * TimeUnit.SECONDS.toNanos(1)));
        var stopped = new AtomicBoolean();
        var ended = new AtomicBoolean();
        var main = Thread.currentThread();
        // SIGTERM: the loop ends, and the unspent units are returned. The exit code is then 0, not 143.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopped.set(true);
            try {
                main.join();
                if (ended.get()) {
                    Runtime.getRuntime().halt(0);
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        try (var weir = WeirClient.builder(arguments[0]).lease().onFailure(OnFailure.DENY).build()) {
            run(weir, check, System.nanoTime() + lasts.toNanos(), stopped);
        }
        ended.set(true);
    }

    private static void run(WeirClient weir, Check check, long endNs, AtomicBoolean stopped) {
        var out = new StringBuilder();
        var flushedNs = System.nanoTime();
        while (!stopped.get() && System.nanoTime() < endNs) {
            var before = wallUs();
            var pauseNs = REFUSED_PAUSE_NS;
            try {
                if (weir.check(check).allowed()) {
                    out.append(before).append(' ').append(wallUs()).append('\n');
                    pauseNs /= 5;
                }
            } catch (WeirException failure) {
                out.append("error ").append(failure.getMessage()).append('\n');
            }
            if (System.nanoTime() - flushedNs > FLUSH_NS) {
                flush(out);
                flushedNs = System.nanoTime();
            }
            LockSupport.parkNanos(pauseNs);
        }
        flush(out);
    }

    private static void flush(StringBuilder out) {
        System.out.print(out);
        System.out.flush();
        out.setLength(0);
    }
}
