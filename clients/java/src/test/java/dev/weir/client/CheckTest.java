package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

class CheckTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);

    @TempDir
    private static Path directory;

    private static Weir server;
    private static WeirClient weir;

    @BeforeAll
    static void start() {
        server = Weir.start(directory);
        weir = server.client().build();
    }

    @AfterAll
    static void stop() {
        weir.close();
        server.close();
    }

    @Test
    void allowsUntilNothingIsLeftThenRefuses() {
        for (var left = 2; left >= 0; left--) {
            var decision = weir.check("user", "alex", "trade");
            assertTrue(decision.allowed());
            assertEquals(3, decision.limit());
            assertEquals(left, decision.remaining());
            assertEquals(Source.SERVICE, decision.source());
            assertEquals(left == 0, decision.nextAfter().isPresent());
        }
        var refused = weir.check("user", "alex", "trade");
        assertFalse(refused.allowed());
        assertTrue(refused.retryAfter().orElseThrow().compareTo(Duration.ofHours(23)) > 0);
        assertEquals(List.of(), refused.levels());
    }

    @Test
    void tellsTheLevelsWhenAsked() {
        var decision = weir.check(Check.of("user", "berta", "trade").withLevels());
        assertEquals(List.of("per-user", "trades \"fair\""), decision.levels().stream().map(Level::name).toList());
        assertEquals(decision.levels().get(1), decision.binding().orElseThrow());
        assertEquals(100, decision.levels().get(0).limit());
    }

    @Test
    void asksWithoutBlocking() throws Exception {
        var thread = weir.checkAsync(Check.of("user", "carla"))
                .thenApply(decision -> {
                    assertEquals(99, decision.remaining());
                    return Thread.currentThread();
                })
                .get(20, TimeUnit.SECONDS);
        assertFalse(thread.getName().contains("grpc"), "code of the caller must not block gRPC's threads");
    }

    @Test
    void previewsAndDryRunsChargeNothing() {
        var dora = Check.of("user", "dora");
        assertEquals(100, weir.check(dora.withCost(0)).remaining());
        assertEquals(70, weir.check(dora.withCost(30).asDryRun()).remaining());
        assertEquals(70, weir.check(dora.withCost(30)).remaining());
        assertTrue(weir.check(dora.withCost(101)).never());
        assertEquals(80, weir.check(dora.withCost(-10)).remaining());
    }

    @Test
    void repeatsChargeOnceUnderOneRequestId() {
        var check = Check.of("user", "emil").withRequestId("5f0c1a5e-31d2-4f4e-a3b0-7d1b3c6b2d10");
        var first = weir.check(check);
        var second = weir.check(check);
        assertEquals(first.remaining(), second.remaining());
        assertFalse(first.repeated());
        assertTrue(second.repeated());
    }

    @Test
    void aDecisionNamesTheBanThatRefusedIt() throws Exception {
        var check = Check.of("user", "gustav");
        assertEquals(Optional.empty(), weir.check(check).banReason());
        Weir.run("ban", "user/gustav", "--reason", "credential stuffing", "--addr", server.address());
        var refused = weir.check(check);
        assertEquals(Optional.of("credential stuffing"), refused.banReason());
        assertTrue(refused.never());
        assertTrue(refused.override().isPresent());
    }

    @Test
    void takesAFactorAndAWait() {
        assertEquals(199, weir.check(Check.of("user", "frida").withCost(0).withFactor(0.5)).limit());
        var queue = Check.of("queue").withLimits(Limit.leakyQueue(1, MINUTE, 5));
        assertTrue(weir.check(queue).allowed());
        assertFalse(weir.check(queue).allowed());
        var waits = weir.check(queue.withMaxWait(Duration.ofHours(1)));
        assertTrue(waits.allowed());
        assertTrue(waits.waitFor().compareTo(Duration.ofSeconds(30)) > 0);
    }

    @Test
    void resetForgetsWhatWasSpent() {
        weir.check("user", "gustav");
        weir.check("user", "gustav", "trade");
        assertTrue(weir.reset("", List.of("user", "gustav"), true));
        assertFalse(weir.reset("", List.of("user", "gustav"), true));
        assertEquals(2, weir.check("user", "gustav", "trade").remaining());
        assertTrue(weir.reset("", List.of("user"), true), "a key below has state");
        assertFalse(weir.reset("", List.of("user", "nobody"), false));
    }

    static Stream<Limit> limits() {
        return Stream.of(
                Limit.gcra(4, 1, MINUTE),
                Limit.tokenBucket(5, 1, MINUTE),
                Limit.leakyBucket(5, 1, MINUTE),
                Limit.leakyQueue(5, MINUTE, 4),
                Limit.fixedWindow(5, MINUTE),
                Limit.slidingLog(5, MINUTE),
                Limit.slidingWindow(5, MINUTE),
                Limit.slidingBuckets(5, MINUTE, Duration.ofSeconds(1)),
                Limit.decay(5, MINUTE, 2),
                Limit.smoothBursty(5, MINUTE),
                Limit.warmingUp(5, MINUTE, MINUTE),
                Limit.cycle(5, MINUTE));
    }

    @ParameterizedTest
    @MethodSource("limits")
    void takesLimitsOfTheCallersOwn(Limit limit) {
        var check = Check.of("own", Integer.toString(limit.hashCode())).withLevels();
        var decision = weir.check(check.withLimits(limit.withName("mine").withDepth(2)));
        assertTrue(decision.allowed());
        assertEquals("mine", decision.binding().orElseThrow().name());
    }

    @Test
    void shadowLimitsNeverRefuse() {
        var check = Check.of("shadow").withLimits(Charge.INDEPENDENT, List.of(Limit.fixedWindow(1, MINUTE).asShadow()));
        weir.check(check);
        var decision = weir.check(check.withLevels());
        assertTrue(decision.allowed());
        assertFalse(decision.levels().get(0).allowed());
    }

    @Test
    void awaitsTheServiceAndSpeaksOverAUnixSocket() {
        weir.awaitReady(Duration.ofSeconds(20));
        var socket = directory.resolve("grpc.sock");
        var settings = Map.of("WEIR_GRPC__LISTEN", "unix:" + socket);
        try (var local = Weir.start(directory, settings); var client = local.client().build()) {
            assertTrue(client.check("user", "alex").allowed());
        }
    }
}
