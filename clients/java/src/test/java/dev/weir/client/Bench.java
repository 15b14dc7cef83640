package dev.weir.client;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Calls a second and latency: {@code ./run bench}. Not a test. */
class Bench {
    private static final Check CHECK = Check.of("many", "alex");
    private static final Duration WARM_UP = Duration.ofSeconds(3);
    private static final Duration MEASURED = Duration.ofSeconds(5);
    private static final int IN_FLIGHT = 256;

    @Test
    void measure(@TempDir Path directory) throws Exception {
        try (var server = Weir.start(directory)) {
            System.out.printf("%-22s %12s %10s %10s%n", "", "calls/s", "p50 us", "p99 us");
            for (var retries : List.of(1, 0)) {
                for (var coalesced : List.of(0, 1024)) {
                    var name = (coalesced == 0 ? "unary" : "coalesced") + (retries == 0 ? ", retries = 0" : "");
                    try (var weir = server.client().retries(retries).coalesce(coalesced).build()) {
                        weir.awaitReady(Duration.ofSeconds(20));
                        var latencies = latencies(weir);
                        System.out.printf(
                                "%-22s %12.0f %10.0f %10.0f%n",
                                name, throughput(weir), percentile(latencies, 0.5), percentile(latencies, 0.99));
                    }
                }
            }
        }
    }

    /** One thread that waits for each answer, in nanoseconds. */
    private static long[] latencies(WeirClient weir) {
        var latencies = new ArrayList<Long>();
        var measuredFrom = System.nanoTime() + WARM_UP.toNanos();
        var end = measuredFrom + MEASURED.toNanos();
        for (var began = System.nanoTime(); began < end; ) {
            weir.check(CHECK);
            var ended = System.nanoTime();
            if (began >= measuredFrom) {
                latencies.add(ended - began);
            }
            began = ended;
        }
        return latencies.stream().mapToLong(Long::longValue).sorted().toArray();
    }

    private static double percentile(long[] sorted, double part) {
        return sorted[(int) (part * (sorted.length - 1))] / 1_000.0;
    }

    /** So many checks in flight at any time. */
    private static double throughput(WeirClient weir) throws InterruptedException {
        var free = new Semaphore(IN_FLIGHT);
        var answered = new AtomicLong();
        var end = System.nanoTime() + MEASURED.toNanos();
        while (System.nanoTime() < end) {
            free.acquire();
            CompletableFuture<Decision> answer = weir.checkAsync(CHECK);
            answer.whenComplete((decision, failure) -> {
                answered.incrementAndGet();
                free.release();
            });
        }
        var inTime = answered.get();
        free.tryAcquire(IN_FLIGHT, 20, TimeUnit.SECONDS);
        return inTime / (double) MEASURED.toSeconds();
    }
}
