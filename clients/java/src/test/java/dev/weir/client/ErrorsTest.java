package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.WeirException.Kind;
import io.grpc.Status;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

class ErrorsTest {
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

    private static WeirException error(Kind kind, Executable call) {
        var error = assertThrows(WeirException.class, call);
        assertEquals(kind, error.kind(), error::getMessage);
        return error;
    }

    @Test
    void longDeadlinesAreTaken() {
        var longest = Duration.ofSeconds(Long.MAX_VALUE);
        for (var time : List.of(Duration.ofHours(25), longest)) {
            var plain = server.client().deadline(time).breaker(1, time);
            for (var builder : List.of(plain, server.client().deadline(time).coalesce(), server.client().deadline(time).lease())) {
                try (var client = builder.build()) {
                    client.awaitReady(time);
                    for (var i = 0; i < 20; i++) {
                        assertTrue(client.check("hot", time.toString()).allowed());
                    }
                    assertTrue(client.check(Check.of("many", "alex").withDeadline(time)).allowed());
                    try (var slot = client.slot(Check.of("exports", time.toString()))) {
                        assertTrue(slot.isHeld());
                    }
                }
            }
        }
    }

    @Test
    void aDeadlineThatIsOverIsNoOutage() {
        try (var client = server.client().breaker(1, Duration.ofHours(1)).build()) {
            client.awaitReady(Duration.ofSeconds(20));
            for (var over : List.of(Duration.ZERO, Duration.ofMillis(-1))) {
                var check = Check.of("user", "alex").withDeadline(over);
                error(Kind.DEADLINE_EXCEEDED, () -> client.check(check));
                error(Kind.DEADLINE_EXCEEDED, () -> client.slot(check));
            }
            assertEquals(BreakerState.CLOSED, client.breakerState());
        }
    }

    @Test
    void invalidRequestsNameTheField() {
        var error = error(Kind.INVALID_REQUEST, () -> weir.check("user", ""));
        assertEquals(Optional.of("key[1]"), error.field());
        var limit = Limit.gcra(1, 0, Duration.ofMinutes(1));
        error = error(Kind.INVALID_REQUEST, () -> weir.check(Check.of("user").withLimits(limit)));
        assertEquals(Optional.of("limit_spec.limits[0].gcra.count"), error.field());
        assertFalse(error.kind().isOutage());
    }

    @Test
    void unknownDomainsAreNotFound() {
        error(Kind.NOT_FOUND, () -> weir.check(Check.of("user").withDomain("unknown")));
    }

    @Test
    void checksTakeNoSlots() {
        error(Kind.FAILED_PRECONDITION, () -> weir.check("exports", "alex"));
    }

    @Test
    void aStackTraceLeadsToTheCaller() {
        var error = error(Kind.INVALID_REQUEST, () -> weir.check("user", ""));
        assertTrue(List.of(error.getStackTrace()).stream().anyMatch(frame -> frame.getClassName().equals(getClass().getName())));
    }

    @Test
    void futuresFailWithTheError() {
        var error = assertThrows(ExecutionException.class, () -> weir.checkAsync(Check.of("user", "")).get());
        assertEquals(Kind.INVALID_REQUEST, assertInstanceOf(WeirException.class, error.getCause()).kind());
    }

    @Test
    void interruptedCallersAreCancelled() throws IOException {
        // An answer that has arrived is returned even if the thread is interrupted, so none must arrive.
        try (var silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                var client = Weir.client("127.0.0.1:" + silent.getLocalPort()).build()) {
            Thread.currentThread().interrupt();
            error(Kind.CANCELLED, () -> client.check("user", "alex"));
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void serversShedLoad(@TempDir Path other) {
        var settings = Map.of("WEIR_GRPC__MAX_REQUESTS_PER_SECOND", "1");
        try (var busy = Weir.start(other, settings); var client = busy.client().build()) {
            client.check("user", "alex");
            error(Kind.OVERLOADED, () -> client.check("user", "alex"));
        }
    }

    @Test
    void withoutAServiceItIsUnavailable() {
        try (var client = Weir.nowhere().build()) {
            error(Kind.UNAVAILABLE, () -> client.check("user", "alex"));
        }
        try (var client = Weir.client("127.0.0.1:1,127.0.0.1:1").build()) {
            error(Kind.UNAVAILABLE, () -> client.checkAll(List.of(Check.of("user", "alex"))));
        }
    }

    @Test
    void aBrokenConnectionIsUnavailable() {
        var broken = Status.UNKNOWN.withCause(new ClosedChannelException()).asRuntimeException();
        assertEquals(Kind.UNAVAILABLE, WeirException.of(broken).kind());
        assertEquals(Kind.OTHER, WeirException.of(Status.UNKNOWN.asRuntimeException()).kind());
    }

    @Test
    void outagesAreTheSameAsInOtherLanguages() {
        var outages = Stream.of(Status.Code.values())
                .filter(code -> code != Status.Code.OK)
                .filter(code -> WeirException.of(code.toStatus().asRuntimeException()).kind().isOutage())
                .collect(Collectors.toSet());
        assertEquals(
                Set.of(Status.Code.UNAVAILABLE, Status.Code.DEADLINE_EXCEEDED, Status.Code.RESOURCE_EXHAUSTED, Status.Code.INTERNAL),
                outages);
    }

    @Test
    void theDeadlineEndsACall(@TempDir Path other) {
        try (var frozen = Weir.start(other); var client = frozen.client().build()) {
            client.awaitReady(Duration.ofSeconds(20));
            frozen.freeze();
            var check = Check.of("user", "alex").withDeadline(Duration.ofMillis(50));
            var started = System.nanoTime();
            error(Kind.DEADLINE_EXCEEDED, () -> client.check(check));
            var took = Duration.ofNanos(System.nanoTime() - started);
            assertTrue(took.compareTo(Duration.ofMillis(50)) >= 0 && took.compareTo(Duration.ofSeconds(10)) < 0, took::toString);
        }
    }

    @Test
    void afterCloseCallsFail() {
        for (var inFlight : List.of(0, 10)) {
            var client = server.client().coalesce(inFlight).build();
            client.check("user", "alex");
            client.close();
            error(Kind.UNAVAILABLE, () -> client.check("user", "alex"));
        }
    }

    @Test
    void outagesAreDecidedByTheClientWhereItSaysSo() {
        try (var client = Weir.nowhere().onFailure(OnFailure.ALLOW).build()) {
            var alex = Check.of("user", "alex");
            var allowed = client.check(alex);
            assertTrue(allowed.allowed());
            assertEquals(Source.FALLBACK, allowed.source());
            assertFalse(allowed.degraded());
            assertEquals(Kind.UNAVAILABLE, allowed.error().orElseThrow().kind());
            assertFalse(client.check(alex.withOnFailure(OnFailure.DENY)).allowed());
            error(Kind.UNAVAILABLE, () -> client.check(alex.withOnFailure(OnFailure.ERROR)));
        }
    }

    @Test
    void wrongConfigurationIsAlwaysAnError() {
        try (var client = server.client().onFailure(OnFailure.ALLOW).build()) {
            error(Kind.NOT_FOUND, () -> client.check(Check.of("user").withDomain("unknown")));
            error(Kind.INVALID_REQUEST, () -> client.check("user", ""));
        }
    }
}
