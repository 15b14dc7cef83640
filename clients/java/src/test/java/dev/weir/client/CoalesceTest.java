package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.WeirException.Kind;
import io.grpc.Context;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Restarts and kills under load: {@link OutageTest}. */
class CoalesceTest {
    @TempDir
    private Path directory;

    private Weir server;

    @BeforeEach
    void start() {
        server = Weir.start(directory);
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private static List<Decision> decisions(WeirClient weir, String user) {
        var checks = IntStream.range(0, 120)
                .mapToObj(i -> weir.checkAsync(Check.of("user", user).withLevels()))
                .toList();
        return checks.stream().map(CompletableFuture::join).toList();
    }

    @Test
    void answersAreThoseOfUnaryCallsInOrder() {
        try (var unary = server.client().build(); var coalesced = server.client().coalesce().build()) {
            Weir.streaming(coalesced, server);
            var wanted = IntStream.range(0, 120)
                    .mapToObj(i -> unary.check(Check.of("user", "alex").withLevels()))
                    .map(Decision::remaining)
                    .toList();
            assertEquals(wanted, decisions(coalesced, "berta").stream().map(Decision::remaining).toList());
            // Checks beyond the maximum are unary calls.
            try (var narrow = server.client().coalesce(3).build()) {
                Weir.streaming(narrow, server);
                assertEquals(100, decisions(narrow, "carla").stream().filter(Decision::allowed).count());
            }
        }
    }

    @Test
    void anInvalidCheckFailsAlone() {
        try (var weir = server.client().coalesce().build()) {
            Weir.streaming(weir, server);
            var good = weir.checkAsync(Check.of("user", "alex"));
            var error = assertThrows(WeirException.class, () -> weir.check("user", ""));
            assertEquals(Kind.INVALID_REQUEST, error.kind());
            assertEquals(Optional.of("key[1]"), error.field());
            assertTrue(good.join().allowed());
            assertEquals(98, weir.check("user", "alex").remaining());
        }
    }

    @Test
    void eachCheckHasItsOwnDeadline() {
        try (var weir = server.client().coalesce().build()) {
            Weir.streaming(weir, server);
            server.freeze();
            var late = weir.checkAsync(Check.of("user", "alex").withDeadline(Duration.ofSeconds(20)));
            var hasty = Check.of("user", "berta").withDeadline(Duration.ofMillis(100));
            var error = assertThrows(WeirException.class, () -> weir.check(hasty));
            assertEquals(Kind.DEADLINE_EXCEEDED, error.kind());
            server.thaw();
            assertTrue(late.join().allowed());
        }
    }

    @Test
    void aStreamOutlivesTheServerCallThatOpensIt() throws Exception {
        try (var weir = server.client().coalesce().retries(0).build()) {
            var serverCall = Context.current().withCancellation();
            serverCall.call(() -> weir.check("user", "alex"));
            Weir.streaming(weir, server);
            server.freeze();
            var other = weir.checkAsync(Check.of("user", "berta"));
            serverCall.cancel(null);
            server.thaw();
            assertTrue(other.join().allowed());
        }
    }

    @Test
    void aStreamIsOpenedByACancelledServerCall() throws Exception {
        try (var weir = server.client().coalesce().retries(0).build()) {
            var serverCall = Context.current().withCancellation();
            serverCall.cancel(null);
            assertTrue(serverCall.call(() -> weir.check("user", "alex")).allowed());
            Weir.streaming(weir, server);
            assertTrue(serverCall.call(() -> weir.check("user", "alex")).allowed());
        }
    }

    @Test
    void checksOfARejectedStreamAreCallsOfTheirOwn(@TempDir Path other) throws Exception {
        try (var single = Weir.start(other, Map.of("WEIR_GRPC__MAX_OPEN_STREAMS", "1"));
                var first = single.client().coalesce().build();
                var weir = single.client().coalesce().retries(0).breaker(1, Duration.ofSeconds(1)).build()) {
            Weir.streaming(first, single);
            var streamed = single.checks("grpc_stream");
            var unary = single.checks("grpc");
            var started = System.nanoTime();
            for (var i = 0; i < 20; i++) {
                assertTrue(weir.check("many", "alex").allowed());
                Thread.sleep(1);
            }
            assertEquals(List.of(streamed, unary + 20), List.of(single.checks("grpc_stream"), single.checks("grpc")));
            var seconds = Duration.ofNanos(System.nanoTime() - started).toSeconds();
            assertTrue(single.rejectedStreams() <= 1 + seconds, "it is asked for once a second at most");
            // The stream is opened again.
            first.close();
            Weir.streaming(weir, single);
            assertEquals(BreakerState.CLOSED, weir.breakerState());
        }
    }

    @Test
    void aStreamThatIsStalledIsReplaced(@TempDir Path other) {
        try (var second = Weir.start(other);
                var weir = Weir.client(server.address() + "," + second.address())
                        .coalesce()
                        .breaker(0, Duration.ZERO)
                        .deadline(Duration.ofMillis(200))
                        .build()) {
            weir.awaitReady(Duration.ofSeconds(20));
            for (var replica : List.of(server, second)) {
                Wait.until(Duration.ofSeconds(20), replica::isConnected);
                var left = replica == server ? second : server;
                replica.freeze();
                var before = left.checks("grpc_stream");
                Wait.until(Duration.ofSeconds(20), () -> passes(weir) && left.checks("grpc_stream") > before);
                replica.thaw();
            }
        }
    }

    private static boolean passes(WeirClient weir) {
        return weir.check(Check.of("many", "alex").withOnFailure(OnFailure.DENY)).allowed();
    }
}
