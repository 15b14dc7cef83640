package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.WeirException.Kind;
import io.grpc.Context;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
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
            var wanted = IntStream.range(0, 120)
                    .mapToObj(i -> unary.check(Check.of("user", "alex").withLevels()))
                    .map(Decision::remaining)
                    .toList();
            assertEquals(wanted, decisions(coalesced, "berta").stream().map(Decision::remaining).toList());
            // Beyond the bound checks are calls of their own.
            try (var narrow = server.client().coalesce(3).build()) {
                assertEquals(100, decisions(narrow, "carla").stream().filter(Decision::allowed).count());
            }
        }
    }

    @Test
    void anInvalidCheckFailsAlone() {
        try (var weir = server.client().coalesce().build()) {
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
        try (var weir = server.client()
                .coalesce()
                .deadline(Duration.ofMillis(100))
                .breaker(0, Duration.ZERO)
                .build()) {
            weir.awaitReady(Duration.ofSeconds(20));
            server.freeze();
            var late = weir.checkAsync(Check.of("user", "alex").withDeadline(Duration.ofSeconds(20)));
            var error = assertThrows(WeirException.class, () -> weir.check("user", "berta"));
            assertEquals(Kind.DEADLINE_EXCEEDED, error.kind());
            server.thaw();
            assertTrue(late.join().allowed());
        }
    }

    @Test
    void aStreamOutlivesTheServerCallThatOpensIt() throws Exception {
        try (var weir = server.client().coalesce().retries(0).build()) {
            var serverCall = Context.current().withCancellation();
            assertTrue(serverCall.call(() -> weir.check("user", "alex")).allowed());
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
                replica.freeze();
                Wait.until(Duration.ofSeconds(20), () -> passes(weir));
                replica.thaw();
            }
        }
    }

    private static boolean passes(WeirClient weir) {
        return weir.check(Check.of("many", "alex").withOnFailure(OnFailure.DENY)).allowed();
    }
}
