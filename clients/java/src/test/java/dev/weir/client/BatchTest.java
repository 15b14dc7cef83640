package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.WeirException.Kind;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class BatchTest {
    private static final Check ALEX = Check.of("user", "alex", "trade");
    private static final Check INVALID = Check.of("user", "");

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
    void eachCheckOfABatchIsDecidedByItself() throws Exception {
        var results = weir.checkBatch(List.of(ALEX, INVALID, ALEX, ALEX, ALEX));
        assertEquals(2, results.get(0).orElseThrow().remaining());
        var failed = assertInstanceOf(CheckResult.Failed.class, results.get(1)).error();
        assertEquals(Kind.INVALID_REQUEST, failed.kind());
        assertEquals(Optional.of("key[1]"), failed.field());
        assertThrows(WeirException.class, results.get(1)::orElseThrow);
        assertTrue(results.get(3).orElseThrow().allowed());
        assertFalse(results.get(4).orElseThrow().allowed());
        assertEquals(List.of(), weir.checkBatchAsync(List.of()).get());
    }

    @Test
    void theLargestBatchWithLevelsIsAnswered(@TempDir Path other) throws Exception {
        var limit = "{ gcra: { burst: 99999, count: 1, period: 1h }, name: %02d" + "x".repeat(230) + " }";
        var limits = IntStream.range(0, 16).mapToObj(limit::formatted).collect(Collectors.joining(", "));
        Files.writeString(other.resolve("limits.yaml"), "schema: { all: { limits: [" + limits + "] } }");
        try (var large = Weir.start(other); var client = large.client().build()) {
            for (var result : client.checkBatch(Collections.nCopies(1000, Check.of("all").withLevels()))) {
                assertEquals(16, result.orElseThrow().levels().size());
            }
        }
    }

    @Test
    void aBatchThatIsTooLargeFailsEachOfItsChecks() {
        var results = weir.checkBatch(Collections.nCopies(1001, ALEX));
        assertEquals(1001, results.size());
        assertEquals(Kind.INVALID_REQUEST, assertInstanceOf(CheckResult.Failed.class, results.get(1000)).error().kind());
    }

    @Test
    void eachCheckOfABatchFailsAsItSays() {
        try (var nowhere = Weir.nowhere().build()) {
            var results = nowhere.checkBatch(List.of(
                    ALEX, ALEX.withOnFailure(OnFailure.ALLOW), ALEX.withOnFailure(OnFailure.DENY)));
            assertInstanceOf(CheckResult.Failed.class, results.get(0));
            assertTrue(results.get(1).orElseThrow().allowed());
            assertFalse(results.get(2).orElseThrow().allowed());
        }
    }

    @Test
    void aBatchEndsAtTheEarliestDeadlineOfItsChecks(@TempDir Path other) {
        var minute = ALEX.withDeadline(Duration.ofMinutes(1));
        var half = ALEX.withDeadline(Duration.ofMillis(500));
        try (var frozen = Weir.start(other);
                var client = frozen.client().deadline(Duration.ofMillis(500)).build();
                var patient = frozen.client().deadline(Duration.ofMinutes(1)).build()) {
            frozen.freeze();
            assertTimeout(Duration.ofSeconds(20), () -> {
                // A check without a deadline has the client's.
                client.checkBatch(List.of(minute, ALEX));
                patient.checkBatch(List.of(ALEX, half, minute));
                assertThrows(WeirException.class, () -> client.checkAll(List.of(minute, ALEX)));
            });
        }
    }

    @Test
    void noChecksTogetherFailAsTheClientSays() {
        assertEquals(Kind.INVALID_REQUEST, assertThrows(WeirException.class, () -> weir.checkAll(List.of())).kind());
        try (var nowhere = Weir.nowhere().build();
                var denying = Weir.nowhere().onFailure(OnFailure.DENY).build();
                var allowing = Weir.nowhere().onFailure(OnFailure.ALLOW).build()) {
            assertEquals(Kind.UNAVAILABLE, assertThrows(WeirException.class, () -> nowhere.checkAll(List.of())).kind());
            assertEquals(new JointDecision(false, List.of()), denying.checkAll(List.of()));
            assertEquals(new JointDecision(true, List.of()), allowing.checkAll(List.of()));
        }
    }

    @Test
    void allPassTogetherOrNone() throws Exception {
        var berta = Check.of("user", "berta");
        var trade = Check.of("user", "berta", "trade").withCost(2);
        var passed = weir.checkAll(List.of(berta, trade));
        assertTrue(passed.allowed());
        assertEquals(1, passed.decisions().get(1).remaining());
        var refused = weir.checkAllAsync(List.of(berta, trade)).get();
        assertFalse(refused.allowed());
        assertEquals(97, weir.check(berta.withCost(0)).remaining());
        assertThrows(WeirException.class, () -> weir.checkAll(List.of(berta, INVALID)));
    }
}
