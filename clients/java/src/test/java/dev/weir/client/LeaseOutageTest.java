package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Several clients lease one key, while replicas are killed, restarted and frozen: together they never exceed the limit. */
class LeaseOutageTest {
    private static final Duration LONG = Duration.ofSeconds(30);
    private static final Check HOT = Check.of("hot", "alex");
    private static final long LIMIT = 100_000;
    /** Longer than a lease lasts. */
    private static final long SETTLED_NS = Duration.ofMillis(400).toNanos();

    @TempDir
    private Path directory;

    /** Checks from one thread for each client, until the limit is exhausted. */
    private static final class Load {
        private final AtomicBoolean exhausts = new AtomicBoolean();
        private final AtomicLong allowed = new AtomicLong();
        private final AtomicLong leased = new AtomicLong();
        private final AtomicLong failed = new AtomicLong();
        private final List<CompletableFuture<Void>> threads;

        Load(WeirClient... clients) {
            threads = Stream.of(clients)
                    .map(weir -> CompletableFuture.runAsync(() -> run(weir), task -> new Thread(task).start()))
                    .toList();
        }

        private void run(WeirClient weir) {
            var admittedNs = System.nanoTime();
            while (!exhausts.get() || System.nanoTime() - admittedNs < SETTLED_NS) {
                var pause = Duration.ofMillis(1);
                try {
                    var decision = weir.check(HOT);
                    if (decision.allowed()) {
                        admittedNs = System.nanoTime();
                        allowed.incrementAndGet();
                        leased.addAndGet(decision.source() == Source.LEASE ? 1 : 0);
                        pause = exhausts.get() ? Duration.ZERO : Duration.ofNanos(200_000);
                    }
                } catch (WeirException failure) {
                    failed.incrementAndGet();
                }
                LockSupport.parkNanos(pause.toNanos());
            }
        }

        /** Waits until leases have allowed that many more checks. */
        void more(long checks) {
            var enough = leased.get() + checks;
            Wait.until(LONG, () -> leased.get() >= enough);
        }

        void end() {
            exhausts.set(true);
            threads.forEach(CompletableFuture::join);
            assertTrue(allowed.get() <= LIMIT, () -> "allowed " + allowed);
        }
    }

    @Test
    void clientsKeepTheLimitWhileReplicasEnd() throws Exception {
        try (var redis = new Redis(directory);
                var one = Weir.start(directory, redis.settings());
                var two = Weir.start(directory, redis.settings());
                var first = Weir.client(one.address() + "," + two.address()).lease().build();
                var second = Weir.client(one.address() + "," + two.address()).lease().build()) {
            first.awaitReady(LONG);
            second.awaitReady(LONG);
            var load = new Load(first, second);
            load.more(1_000);
            for (var replica : List.of(one, two)) {
                replica.kill();
                load.more(200);
                replica.start();
                Wait.until(LONG, () -> replica.hasConnections(2));
            }
            for (var replica : List.of(one, two)) {
                load.more(200);
                replica.stop();
                load.more(200);
                replica.start();
                Wait.until(LONG, () -> replica.hasConnections(2));
            }
            load.end();
            assertEquals(0, load.failed.get());
            assertTrue(load.leased.get() > load.allowed.get() / 2, () -> load.leased + " of " + load.allowed);
        }
    }

    @Test
    void aFrozenReplicaIsReplaced() throws Exception {
        try (var redis = new Redis(directory);
                var one = Weir.start(directory, redis.settings());
                var two = Weir.start(directory, redis.settings());
                var weir = Weir.client(one.address() + "," + two.address())
                        .lease()
                        .deadline(Duration.ofMillis(100))
                        .build()) {
            weir.awaitReady(LONG);
            var load = new Load(weir, weir, weir, weir);
            load.more(200);
            for (var replica : List.of(one, two)) {
                replica.freeze();
                load.more(3_000);
                replica.thaw();
            }
            load.end();
        }
    }
}
