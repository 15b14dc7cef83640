package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Context;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class GuardTest {
    private static final String NAME = "\"trades \\\"fair\\\"\"";

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
    void headersTellOfTheBindingLimit() throws Exception {
        var guard = Guard.failingOpen(weir);
        var check = Check.of("user", "alex", "trade");
        var first = guard.judge(check);
        assertTrue(first.passes());
        assertEquals(Map.of("RateLimit-Policy", NAME + ";q=3", "RateLimit", NAME + ";r=2"), first.headers());
        guard.judge(check);
        assertTrue(guard.judge(check).headers().get("RateLimit").matches(".*;r=0;t=86[34]..$"));
        var refused = guard.judgeAsync(check).get();
        assertFalse(refused.passes());
        assertEquals(429, refused.status());
        assertTrue(refused.headers().get("Retry-After").matches("86[34].."));
        assertTrue(refused.body().contains("\"status\": 429"));
        assertEquals(Map.of(), guard.judge(Check.of("unlimited")).headers());
    }

    @Test
    void usersCannotMakeACheckInvalid() {
        var guard = Guard.failingClosed(weir);
        for (var segment : List.of("", "x".repeat(3000), "ä".repeat(2000), "\uD83D\uDE00".repeat(700), "\uD83D")) {
            assertTrue(guard.judge(Check.of("user", segment)).decision().isPresent(), segment);
        }
        assertTrue(guard.judge(Check.of(Collections.nCopies(40, "deep"))).decision().isPresent());
        assertTrue(guard.judge(Check.of(List.of())).decision().isPresent(), "an empty key");
        guard.judge(Check.of("user", "é".repeat(512) + "1"));
        assertEquals(98, guard.judge(Check.of("user", "é".repeat(512) + "2")).decision().orElseThrow().remaining());
    }

    /** A check of a key that lets a request pass every so often; others wait. */
    private static Check queued(String key, Duration period) {
        return Check.of(key).withLimits(Limit.leakyQueue(1, period, 5)).withMaxWait(Duration.ofHours(1));
    }

    @Test
    void aRequestPassesAfterItsWait() {
        var guard = Guard.failingOpen(weir);
        var queued = queued("waits", Duration.ofMillis(500));
        for (var judge : List.<Function<Check, Verdict>>of(guard::judge, check -> guard.judgeAsync(check).join())) {
            // On a machine that is slower than the queue the next request waits.
            Wait.until(Duration.ofSeconds(20), () -> {
                var startedNs = System.nanoTime();
                var verdict = judge.apply(queued);
                var tookNs = System.nanoTime() - startedNs;
                var waitNs = verdict.decision().orElseThrow().waitFor().toNanos();
                assertTrue(verdict.passes());
                assertTrue(tookNs >= waitNs, () -> tookNs + " ns, not " + waitNs);
                return waitNs > 0;
            });
        }
    }

    @Test
    void anExecutorThatRejectsCompletesAWait() {
        var rejects = new AtomicBoolean();
        Executor executor = task -> {
            if (rejects.get()) {
                throw new RejectedExecutionException("of the executor");
            }
            task.run();
        };
        try (var client = server.client().executor(executor).build()) {
            var waits = client.later("value", Duration.ofMillis(1));
            assertEquals("value", waits.join());
            rejects.set(true);
            var rejected = client.later("value", Duration.ofMillis(1)).orTimeout(20, TimeUnit.SECONDS);
            var failure = assertThrows(CompletionException.class, rejected::join);
            assertEquals(RejectedExecutionException.class, failure.getCause().getClass());
        }
    }

    @Test
    void noCodeOfTheCallerRunsOnTheThreadOfAllDelays() {
        try (var client = server.client().executor(Runnable::run).build()) {
            var thread = client.later("value", Duration.ofMillis(100)).thenApply(value -> Thread.currentThread().getName());
            assertFalse(thread.join().contains("Delay"), thread.join());
        }
    }

    @Test
    void aRequestThatEndsWhileItWaitsDoesNotPass() throws Exception {
        var guard = Guard.failingOpen(weir);
        var queued = queued("ends", Duration.ofHours(1));
        assertTrue(guard.judge(queued).passes());
        var serverCall = Context.current().withCancellation();
        CompletableFuture.delayedExecutor(100, TimeUnit.MILLISECONDS).execute(() -> serverCall.cancel(null));
        assertEquals(503, serverCall.call(() -> guard.judge(queued)).status());
    }

    @Test
    void withoutADecisionItFailsAsItIsTold() {
        try (var nowhere = Weir.nowhere().build()) {
            var open = Guard.failingOpen(nowhere);
            var closed = Guard.failingClosed(nowhere);
            var login = Check.of("user", "alex", "login");
            assertTrue(open.judge(login).passes());
            assertTrue(closed.judge(login.withOnFailure(OnFailure.ALLOW)).passes());
            assertEquals(503, open.judge(login.withOnFailure(OnFailure.DENY)).status());
            var refused = closed.judge(login);
            assertFalse(refused.passes());
            assertEquals(Map.of("Retry-After", "1"), refused.headers());
            assertTrue(refused.body().contains("temporary-reduced-capacity"));
        }
    }

    @Test
    void eachKindOfFailureIsLoggedOnceInAWhile() throws IOException {
        var lines = new ArrayList<String>();
        var handler = new Handler() {
            @Override
            public void publish(LogRecord logged) {
                lines.add(logged.getLevel() + " " + new SimpleFormatter().formatMessage(logged));
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        var logger = Logger.getLogger("dev.weir.client");
        logger.addHandler(handler);
        // An answer that has arrived is returned even if the thread is interrupted, so none must arrive.
        try (var silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                var unanswered = Weir.client("127.0.0.1:" + silent.getLocalPort()).build();
                var nowhere = Weir.nowhere().breaker(0, Duration.ZERO).build()) {
            var unavailable = Guard.failingOpen(nowhere);
            var misconfigured = Guard.failingOpen(weir);
            var cancelled = Guard.failingOpen(unanswered);
            for (var i = 0; i < 3; i++) {
                unavailable.judge(Check.of("user", "alex"));
                misconfigured.judge(Check.of("user", "alex").withDomain("unknown"));
                Thread.currentThread().interrupt();
                cancelled.judge(Check.of("user", "alex"));
                assertTrue(Thread.interrupted());
            }
        } finally {
            logger.removeHandler(handler);
        }
        assertEquals(3, lines.size());
        assertTrue(lines.get(0).startsWith("WARNING no answer from weir: UNAVAILABLE"), lines.get(0));
        assertTrue(lines.get(1).startsWith("SEVERE WEIR IS SET UP WRONGLY, NO REQUEST IS CHECKED: NOT_FOUND"), lines.get(1));
        assertTrue(lines.get(2).startsWith("WARNING no answer from weir: CANCELLED"), lines.get(2));
    }
}
