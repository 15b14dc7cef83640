package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Context;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SlotTest {
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
    void aSlotIsGivenBack() {
        var exports = Check.of("exports", "alex");
        try (var slot = weir.slot(exports)) {
            assertTrue(slot.isHeld());
            try (var another = weir.slot(exports)) {
                assertFalse(another.isHeld());
                assertTrue(another.decision().retryAfter().isPresent());
            }
        }
        assertThrows(IllegalStateException.class, () -> {
            try (var slot = weir.slot(exports)) {
                assertTrue(slot.isHeld());
                throw new IllegalStateException("the export has failed");
            }
        });
        try (var slot = weir.slot(exports)) {
            assertTrue(slot.isHeld());
        }
    }

    @Test
    void aReleasedSlotIsNotExtendedAnyMore() {
        for (var i = 0; i < 20; i++) {
            try (var slot = weir.slot(Check.of("exports", "gustav"))) {
                assertTrue(slot.isHeld());
            }
        }
        // The reconnection, and slots of other tests.
        assertTrue(weir.timer.getQueue().size() < 10, weir.timer.getQueue()::toString);
    }

    @Test
    void theFirstExtensionCountsFromTheRequest() {
        var delays = new ArrayList<Long>();
        var timer = new ScheduledThreadPoolExecutor(1) {
            @Override
            public ScheduledFuture<?> schedule(Runnable task, long delay, TimeUnit unit) {
                delays.add(delay);
                return null;
            }
        };
        var decision = Decision.fallback(true, new WeirException(WeirException.Kind.OTHER, "a test"));
        var ttl = Duration.ofHours(1);
        var askedNs = System.nanoTime() - ttl.dividedBy(3).toNanos();
        new Slot(new Reservation(decision, "held", ttl, null), Optional.empty(), null, timer, askedNs);
        assertEquals(1, delays.size());
        assertTrue(delays.get(0) <= 0, delays::toString);
    }

    @Test
    void aServerCallThatIsCancelledGivesItsSlotBack() {
        var exports = Check.of("exports", "frida");
        var serverCall = Context.current().withCancellation();
        serverCall.run(() -> {
            try (var slot = weir.slot(exports)) {
                assertTrue(slot.isHeld());
                serverCall.cancel(null);
            }
        });
        try (var slot = weir.slot(exports)) {
            assertTrue(slot.isHeld());
        }
    }

    @Test
    void aSlotIsExtended() {
        var exports = Check.of("exports", "berta");
        var ttl = Duration.ofSeconds(3);
        try (var slot = weir.slot(exports, ttl)) {
            var twice = System.nanoTime() + 2 * ttl.toNanos();
            Wait.until(Duration.ofSeconds(20), () -> System.nanoTime() > twice);
            assertTrue(slot.isHeld());
            assertFalse(weir.slot(exports).isHeld());
        }
    }

    @Test
    void aSlotThatIsLostIsNoticed(@TempDir Path other) throws Exception {
        try (var forgetful = Weir.start(other);
                var client = forgetful.client().breaker(0, Duration.ZERO).build()) {
            try (var slot = client.slot(Check.of("exports", "carla"), Duration.ofMillis(300))) {
                forgetful.kill();
                slot.whenLost().get(20, TimeUnit.SECONDS);
                assertFalse(slot.isHeld());
            }
            forgetful.start();
            client.awaitReady(Duration.ofSeconds(20));
            try (var slot = client.slot(Check.of("exports", "carla"), Duration.ofSeconds(30))) {
                forgetful.kill();
                forgetful.start();
                slot.whenLost().get(25, TimeUnit.SECONDS);
            }
        }
    }

    @Test
    void aSlotIsLostWhenItsTimeIsOver(@TempDir Path other) throws Exception {
        try (var frozen = Weir.start(other); var client = frozen.client().build()) {
            var ttl = Duration.ofSeconds(3);
            try (var slot = client.slot(Check.of("exports", "emil"), ttl)) {
                var over = System.nanoTime() + ttl.toNanos();
                // The last attempt to extend hangs.
                frozen.freeze();
                Wait.until(Duration.ofSeconds(20), () -> System.nanoTime() >= over);
                assertFalse(slot.isHeld());
                slot.whenLost().get(20, TimeUnit.SECONDS);
                frozen.thaw();
            }
        }
    }

    @Test
    void withoutAServiceItIsAsTheCheckSays() {
        try (var nowhere = Weir.nowhere().build();
                var slot = nowhere.slot(Check.of("exports", "dora").withOnFailure(OnFailure.ALLOW))) {
            assertTrue(slot.isHeld());
        }
    }
}
