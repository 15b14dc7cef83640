package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.WeirException.Kind;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Leases of one client; see {@link LeaseOutageTest} for several clients, and for faults. */
class LeaseTest {
    private static final Duration LONG = Duration.ofSeconds(20);
    private static final Check HOT = Check.of("hot", "alex");
    private static final Check FEW = Check.of("few", "alex");
    /** Its lease lasts longer than any test. */
    private static final Check HELD = Check.of("held", "alex");

    @TempDir
    private Path directory;

    /** Checks until a lease decides, and returns the number of allowed checks. */
    private static long leasing(WeirClient weir, Check check) {
        var allowed = new long[1];
        Wait.until(LONG, () -> {
            Decision last = null;
            for (var i = 0; i < 4; i++) {
                last = weir.check(check);
                allowed[0] += last.allowed() ? 1 : 0;
            }
            return last.source() == Source.LEASE;
        });
        return allowed[0];
    }

    @Test
    void aLeaseRefusesForATime() {
        try (var server = Weir.start(directory); var weir = server.client().lease().build(); var other = server.client().build()) {
            leasing(weir, FEW);
            var guard = Guard.failingOpen(weir);
            // A unit refills in a day, whether the service or a lease refuses. Until then the last units may still be
            // granted.
            Wait.until(LONG, () -> {
                for (var leased = 0; leased < 100; ) {
                    var verdict = guard.judge(FEW);
                    var refusal = verdict.decision().orElseThrow();
                    if (refusal.retryAfter().orElse(Duration.ZERO).toHours() < 23) {
                        return false;
                    }
                    assertFalse(refusal.allowed());
                    assertTrue(Integer.parseInt(verdict.headers().get("Retry-After")) > 82_800);
                    if (refusal.source() == Source.LEASE) {
                        leased++;
                        assertEquals(List.of("Retry-After"), List.copyOf(verdict.headers().keySet()));
                        assertTrue(refusal.leased());
                    }
                }
                return true;
            });
            // After a reset other clients pass immediately, and this client soon.
            weir.reset("", FEW.key(), false);
            assertTrue(other.check(FEW).allowed());
            Wait.until(LONG, () -> weir.check(FEW).allowed());
        }
    }

    @Test
    void aBanUntilTheYear9999RefusesWithALease() throws Exception {
        try (var server = Weir.start(directory); var weir = server.client().lease().build()) {
            leasing(weir, HOT);
            Weir.run("ban", "--all-keys", "--reason", "a test", "--until", "9999-12-31T00:00:00Z", "--addr", server.address());
            var centuries = Duration.ofDays(365 * 7_000L);
            var guard = Guard.failingOpen(weir);
            for (var key : List.of(HOT, Check.of("user", "alex"), Check.of("hot", "berta"))) {
                Wait.until(LONG, () -> !weir.check(key).allowed());
                for (var i = 0; i < 50; i++) {
                    var verdict = guard.judge(key);
                    assertEquals(429, verdict.status());
                    assertTrue(Long.parseLong(verdict.headers().get("Retry-After")) > centuries.toSeconds());
                }
            }
        }
    }

    @Test
    void aPolicyEndsLeases() {
        try (var server = Weir.start(directory); var weir = server.client().lease().build()) {
            leasing(weir, HOT);
            server.enforce(Weir.POLICY.replace("burst: 99999,", "burst: 9,"));
            Wait.until(LONG, () -> !weir.check(HOT).allowed());
            var berta = Check.of("hot", "berta");
            leasing(weir, berta);
            server.enforce(Weir.POLICY.replace("lease: true", "lease: false"));
            Wait.until(LONG, () -> {
                for (var end = System.nanoTime() + Duration.ofMillis(300).toNanos(); System.nanoTime() < end; ) {
                    if (weir.check(berta).source() != Source.SERVICE) {
                        return false;
                    }
                }
                return true;
            });
        }
    }

    @Test
    void closeGivesBackWhatIsHeld() {
        try (var server = Weir.start(directory); var other = server.client().build()) {
            long allowed;
            try (var weir = server.client().lease().build()) {
                allowed = leasing(weir, HELD);
                assertTrue(other.check(HELD.withCost(0)).remaining() + allowed < 1_000);
            }
            assertEquals(1_000 - allowed, other.check(HELD.withCost(0)).remaining());
        }
    }

    @Test
    void closeByManyThreadsAtOnceGivesBackOnce() throws Exception {
        try (var server = Weir.start(directory); var other = server.client().build(); var weir = server.client().lease().build()) {
            var allowed = leasing(weir, HELD);
            var threads = Executors.newFixedThreadPool(4);
            try {
                for (var closed : threads.invokeAll(Collections.nCopies(4, Executors.callable(weir::close)), 20, TimeUnit.SECONDS)) {
                    closed.get();
                }
            } finally {
                threads.shutdownNow();
            }
            assertEquals(1_000 - allowed, other.check(HELD.withCost(0)).remaining());
        }
    }

    @Test
    void whatIsHeldOutlivesTheService() {
        try (var server = Weir.start(directory);
                var weir = server.client().lease().retries(0).deadline(Duration.ofSeconds(5)).build()) {
            weir.awaitReady(LONG);
            leasing(weir, HELD);
            server.kill();
            var left = weir.check(HELD).remaining();
            for (; left > 0; left--) {
                var decision = weir.check(HELD);
                assertEquals(Source.LEASE, decision.source());
                assertEquals(left - 1, decision.remaining());
            }
            assertEquals(Source.FALLBACK, weir.check(HELD.withOnFailure(OnFailure.DENY)).source());
            Wait.until(LONG, () -> {
                assertThrows(WeirException.class, () -> weir.check(HELD));
                return weir.breakerState() == BreakerState.OPEN;
            });
        }
    }

    @Test
    void someChecksNoLeaseCanDecide() {
        try (var server = Weir.start(directory);
                var weir = server.client().lease().build();
                var plain = server.client().build()) {
            leasing(weir, HOT);
            for (var check : List.of(
                    HOT.withCost(0), HOT.withCost(-1), HOT.withFactor(2), HOT.asDryRun(), HOT.withRequestId("one"),
                    HOT.withLimits(), HOT.withMaxWait(Duration.ofSeconds(1)), HOT.withLease(false))) {
                assertEquals(Source.SERVICE, weir.check(check).source(), check::toString);
            }
            for (var i = 0; i < 20; i++) {
                assertEquals(Source.SERVICE, weir.check("many", "alex").source(), "a key that is not leased");
                assertEquals(Source.SERVICE, plain.check(HOT).source());
                var error = assertThrows(WeirException.class, () -> weir.check("user", ""));
                assertEquals(Optional.of("key[1]"), error.field());
                error = assertThrows(WeirException.class, () -> weir.check(HOT.withDomain("unknown")));
                assertEquals(Kind.NOT_FOUND, error.kind());
            }
            Wait.until(LONG, () -> plain.check(HOT.withLease(true)).source() == Source.LEASE);
            Wait.until(LONG, () -> plain.checkAsync(HOT.withLease(true).withCost(3)).join().source() == Source.LEASE);
        }
    }

    @Test
    void aServiceThatServesNoStreamDecidesAll() {
        try (var server = Weir.start(directory, Map.of("WEIR_GRPC__MAX_OPEN_STREAMS", "1"));
                var coalesced = server.client().coalesce().build();
                var weir = server.client().lease().build()) {
            Weir.streaming(coalesced, server);
            for (var i = 0; i < 100; i++) {
                assertEquals(Source.SERVICE, weir.check(HOT).source());
            }
        }
    }

    @Test
    void anAnsweredRequestLeavesNoTimeout() {
        try (var server = Weir.start(directory);
                var weir = server.client().lease().deadline(Duration.ofMinutes(10)).build()) {
            leasing(weir, FEW);
            Wait.until(LONG, () -> !weir.check(FEW).allowed());
            // After each hold-off a check is decided by a request of the lease.
            for (var asked = 0; asked < 50; ) {
                asked += weir.check(FEW).source() == Source.SERVICE ? 1 : 0;
            }
            // The tick of leases, the reconnection and a request that is in flight.
            Wait.until(LONG, () -> weir.timer.getQueue().size() <= 3);
        }
    }

    @Test
    void noThreadOutlivesTheClient() {
        try (var server = Weir.start(directory)) {
            try (var weir = server.client().lease().build()) {
                leasing(weir, HOT);
            }
            Wait.until(LONG, () ->
                    Thread.getAllStackTraces().keySet().stream().noneMatch(it -> it.getName().equals("weir-client-timer")));
        }
    }
}
