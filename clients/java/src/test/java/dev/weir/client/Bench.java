package dev.weir.client;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Checks per second and latency: {@code ./run bench}. Not a test. */
class Bench {
    private static final Check CHECK = Check.of("many", "alex");
    private static final Check AMPLE = Check.of("ample", "alex");
    private static final Duration WARM_UP = Duration.ofSeconds(3);
    private static final Duration MEASURED =
            Duration.ofSeconds(Long.parseLong(System.getenv().getOrDefault("BENCH_SECONDS", "5")));
    private static final int IN_FLIGHT = 256;
    private static final int MAX_LATENCIES = 5_000_000;

    @Test
    void measure(@TempDir Path directory) throws Exception {
        try (var server = Weir.start(directory)) {
            System.out.printf("%-22s %12s %10s %10s%n", "", "checks/s", "p50 us", "p99 us");
            for (var retries : List.of(1, 0)) {
                for (var coalesced : List.of(0, 1024)) {
                    var name = (coalesced == 0 ? "unary" : "coalesced") + (retries == 0 ? ", retries = 0" : "");
                    try (var weir = server.client().retries(retries).coalesce(coalesced).build()) {
                        weir.awaitReady(Duration.ofSeconds(20));
                        var latencies = latencies(weir, CHECK);
                        print(name, throughput(weir), latencies);
                    }
                }
            }
            try (var weir = server.client().lease().build()) {
                weir.awaitReady(Duration.ofSeconds(20));
                var latencies = latencies(weir, AMPLE);
                print("leased", leasedThroughput(weir), latencies);
            }
        }
    }

    private static void print(String name, double throughput, long[] latencies) {
        System.out.printf(
                "%-22s %12.0f %10.2f %10.2f%n", name, throughput, percentile(latencies, 0.5), percentile(latencies, 0.99));
    }

    /**
     * Returns the sorted latencies, in nanoseconds, of one thread that checks one after the other; at most
     * {@code MAX_LATENCIES}.
     */
    private static long[] latencies(WeirClient weir, Check check) {
        var latencies = new long[MAX_LATENCIES];
        var count = 0;
        var measuredFrom = System.nanoTime() + WARM_UP.toNanos();
        var end = measuredFrom + MEASURED.toNanos();
        for (var started = System.nanoTime(); started < end; ) {
            weir.check(check);
            var ended = System.nanoTime();
            if (started >= measuredFrom && count < MAX_LATENCIES) {
                latencies[count++] = ended - started;
            }
            started = ended;
        }
        return LongStream.of(latencies).limit(count).sorted().toArray();
    }

    /** Checks from one thread for each core. */
    private static double leasedThroughput(WeirClient weir) {
        var end = System.nanoTime() + MEASURED.toNanos();
        var checks = IntStream.range(0, Runtime.getRuntime().availableProcessors()).parallel().mapToLong(thread -> {
            var made = 0L;
            for (; System.nanoTime() < end; made++) {
                weir.check(AMPLE);
            }
            return made;
        });
        return checks.sum() / (double) MEASURED.toSeconds();
    }

    private static double percentile(long[] sorted, double part) {
        return sorted[(int) (part * (sorted.length - 1))] / 1_000.0;
    }

    /** Checks with {@code IN_FLIGHT} in flight at any time. */
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
