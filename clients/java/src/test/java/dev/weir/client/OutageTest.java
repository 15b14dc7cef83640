package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.WeirException.Kind;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class OutageTest {
    private static final Duration LONG = Duration.ofSeconds(20);
    private static final Check CHECK = Check.of("many", "alex");

    @TempDir
    private Path directory;

    /** Checks from several threads until it is stopped. */
    private static final class Load {
        private final AtomicBoolean over = new AtomicBoolean();
        private final AtomicInteger allowed = new AtomicInteger();
        private final List<CompletableFuture<Void>> threads = new ArrayList<>();

        Load(WeirClient weir) {
            for (var i = 0; i < 2; i++) {
                threads.add(CompletableFuture.runAsync(() -> {
                    while (!over.get()) {
                        var decision = weir.check(CHECK);
                        assertTrue(decision.allowed() && !decision.degraded(), decision::toString);
                        assertEquals(Source.SERVICE, decision.source());
                        allowed.incrementAndGet();
                    }
                }, task -> new Thread(task).start()));
            }
        }

        /** Waits for further checks, so that the next step happens under load. */
        void more() {
            var before = allowed.get();
            Wait.until(LONG, () -> {
                threads.stream().filter(CompletableFuture::isCompletedExceptionally).forEach(CompletableFuture::join);
                return allowed.get() > before + 100;
            });
        }

        /** Stops the load, and returns the number of allowed checks. Fails if a check has failed. */
        int end() {
            over.set(true);
            threads.forEach(CompletableFuture::join);
            return allowed.get();
        }
    }

    private static long charged(WeirClient weir) {
        return 1_000_000 - weir.check(CHECK.withCost(0)).remaining();
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1024})
    void aReplicaThatIsKilledFailsNoCallAndEachIsChargedOnce(int coalesced) throws Exception {
        try (var redis = new Redis(directory);
                var one = Weir.start(directory, redis.settings());
                var two = Weir.start(directory, redis.settings());
                var weir = Weir.client(one.address() + "," + two.address()).coalesce(coalesced).build()) {
            weir.awaitReady(LONG);
            var load = new Load(weir);
            for (var replica : List.of(one, two, one)) {
                load.more();
                replica.kill();
                load.more();
                replica.start();
                Wait.until(LONG, replica::isConnected);
            }
            load.more();
            assertEquals(load.end(), charged(weir));
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1024})
    void aRollingRestartFailsNoCall(int coalesced) throws Exception {
        try (var redis = new Redis(directory);
                var one = Weir.start(directory, redis.settings());
                var two = Weir.start(directory, redis.settings());
                var weir = Weir.client(one.address() + "," + two.address()).coalesce(coalesced).build()) {
            weir.awaitReady(LONG);
            var load = new Load(weir);
            for (var round = 0; round < 2; round++) {
                for (var replica : List.of(one, two)) {
                    load.more();
                    replica.stop();
                    load.more();
                    replica.start();
                    Wait.until(LONG, replica::isConnected);
                }
            }
            load.more();
            assertEquals(load.end(), charged(weir));
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1024})
    void aConnectionThatAgesFailsNoCall(int coalesced) {
        var settings = Map.of(
                "WEIR_GRPC__MAX_CONNECTION_AGE", "100ms",
                "WEIR_GRPC__MAX_CONNECTION_AGE_GRACE", "50ms");
        try (var server = Weir.start(directory, settings); var weir = server.client().coalesce(coalesced).build()) {
            weir.awaitReady(LONG);
            var load = new Load(weir);
            for (var i = 0; i < 20; i++) {
                load.more();
            }
            assertEquals(load.end(), charged(weir));
        }
    }

    @Test
    void theCircuitBreakerOpensAndCloses() {
        var states = new ArrayList<BreakerState>();
        var telemetry = new Telemetry() {
            @Override
            public Observation begin(List<Check> checks) {
                return results -> {};
            }

            @Override
            public void breakerChanged(String target, BreakerState state) {
                states.add(state);
            }
        };
        try (var server = Weir.start(directory);
                var weir = server.client()
                        .retries(0)
                        .breaker(3, Duration.ofSeconds(2))
                        .telemetry(telemetry)
                        .build()) {
            weir.awaitReady(LONG);
            server.kill();
            for (var i = 0; i < 3; i++) {
                assertEquals(Kind.UNAVAILABLE, error(weir));
            }
            assertEquals(BreakerState.OPEN, weir.breakerState());
            assertEquals(Kind.CIRCUIT_OPEN, error(weir));
            server.start();
            Wait.until(LONG, () -> weir.check(CHECK.withOnFailure(OnFailure.DENY)).allowed());
            assertEquals(BreakerState.CLOSED, weir.breakerState());
            var first = List.of(BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN);
            assertEquals(first, states.subList(0, 3));
            assertEquals(BreakerState.CLOSED, states.get(states.size() - 1));
        }
    }

    @Test
    void aRetryWaitsForAConnection() throws Exception {
        try (var server = Weir.start(directory)) {
            server.kill();
            try (var weir = server.client().build()) {
                disconnected(weir);
                // Its first attempt fails immediately.
                var check = weir.checkAsync(CHECK);
                server.start();
                assertTrue(check.get(20, TimeUnit.SECONDS).allowed());
            }
        }
    }

    @Test
    void aRetryThatWaitsInVainFailsWithTheFirstError() {
        try (var weir = WeirClient.builder("127.0.0.1:1").deadline(Duration.ofSeconds(1)).build()) {
            disconnected(weir);
            assertEquals(Kind.UNAVAILABLE, error(weir));
        }
    }

    /** Waits until the client has failed to connect, by a call that is not retried. */
    private static void disconnected(WeirClient weir) {
        assertThrows(WeirException.class, () -> weir.checkAll(List.of(CHECK)));
    }

    private static Kind error(WeirClient weir) {
        return assertThrows(WeirException.class, () -> weir.check(CHECK)).kind();
    }
}
