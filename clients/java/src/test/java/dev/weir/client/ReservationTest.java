package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.WeirException.Kind;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ReservationTest {
    private static final Duration TTL = Duration.ofMinutes(2);

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

    private static Check ten(String user) {
        return Check.of("user", user).withCost(10);
    }

    private static long left(String user) {
        return weir.check(ten(user).withCost(0)).remaining();
    }

    @Test
    void aCommitGivesBackWhatWasNotUsed() {
        try (var reservation = weir.reserve(ten("alex"), TTL)) {
            assertEquals(90, reservation.decision().remaining());
            assertEquals(new Settlement(4, 6, 0, false), reservation.commit(4));
            assertEquals(new Settlement(4, 6, 0, false), reservation.commit(9), "the first settlement counts");
        }
        assertEquals(96, left("alex"));
    }

    @Test
    void aCommitChargesWhatWasUsedBeyond() throws Exception {
        try (var reservation = weir.reserveAsync(ten("berta"), TTL, OnExpiry.RELEASE).get()) {
            assertEquals(new Settlement(12, 0, 2, false), reservation.commitAsync(12).get());
        }
        try (var reservation = weir.reserve(ten("berta"), TTL)) {
            assertEquals(10, reservation.commit().charged());
        }
        assertEquals(78, left("berta"));
    }

    @Test
    void aBlockThatFailsGivesEverythingBack() {
        assertThrows(IllegalStateException.class, () -> {
            try (var reservation = weir.reserve(ten("carla"), TTL)) {
                assertTrue(reservation.decision().allowed());
                throw new IllegalStateException("the model has failed");
            }
        });
        assertEquals(100, left("carla"));
        assertEquals(10, weir.reserve(ten("carla"), TTL).cancel().refunded());
    }

    @Test
    void workIsChargedInFullUnlessItSettlesOrFails() {
        weir.withReservation(ten("hans"), TTL, reservation -> reservation.decision().allowed());
        assertEquals(90, left("hans"));
        assertEquals(7, weir.withReservation(ten("hans"), TTL, reservation -> reservation.commit(3)).refunded());
        assertEquals(87, left("hans"));
        assertThrows(IllegalStateException.class, () -> weir.withReservation(ten("hans"), TTL, reservation -> {
            throw new IllegalStateException("the model has failed");
        }));
        assertEquals(87, left("hans"));
    }

    @Test
    void aRefusedReservationHoldsNothing() {
        try (var refused = weir.reserve(ten("dora").withCost(101), TTL)) {
            assertFalse(refused.decision().allowed());
            assertEquals(0, refused.commit(5).charged());
        }
        assertEquals(100, left("dora"));
    }

    @Test
    void aReservationIsExtendedAndEndsByItself() {
        var reservation = weir.reserve(ten("emil"), Duration.ofMillis(200), OnExpiry.RELEASE);
        assertTrue(reservation.extend(TTL).compareTo(Duration.ofSeconds(100)) > 0);
        assertTrue(reservation.extend(Duration.ofMillis(20)).compareTo(Duration.ofMillis(20)) <= 0);
        Wait.until(Duration.ofSeconds(20), () -> left("emil") == 100);
        var late = assertThrows(WeirException.class, reservation::commit);
        assertEquals(Kind.NOT_FOUND, late.kind());
    }

    @Test
    void withoutAServiceItIsAsTheCheckSays() {
        try (var nowhere = Weir.nowhere().onFailure(OnFailure.ALLOW).build();
                var reservation = nowhere.reserve(ten("frida"), TTL)) {
            assertEquals(Source.FALLBACK, reservation.decision().source());
            assertTrue(reservation.commit(3).degraded());
        }
    }

    @Test
    void aCommitThatFailedIsNotCancelledAtTheEndOfTheBlock(@TempDir Path other) {
        var settings = Map.of("WEIR_STORE__SNAPSHOT__PATH", other.resolve("snapshot").toString());
        try (var restarted = Weir.start(other, settings); var client = restarted.client().retries(0).build()) {
            try (var reservation = client.reserve(ten("gustav"), TTL)) {
                restarted.stop();
                assertThrows(WeirException.class, () -> reservation.commit(4));
                restarted.start();
                client.awaitReady(Duration.ofSeconds(20));
            }
            assertEquals(90, client.check(ten("gustav").withCost(0)).remaining());
        }
    }
}
