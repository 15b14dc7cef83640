package dev.weir.client;

import io.grpc.Context;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Checks requests of a server; the common part of all middleware. It never fails: if the service does not decide, the
 * request passes (fail open), or is refused with 503 (fail closed). The reason is logged, each kind at most once in ten
 * seconds.
 *
 * <p>Users cannot bypass the limit by making a check invalid: empty and overlong segments of the key are repaired, those
 * after the 32nd are dropped, and an empty key becomes {@code -}.
 *
 * <p>With {@link Check#withMaxWait} an allowed request passes after its {@link Decision#waitFor()}.
 */
public final class Guard {
    private static final int MAX_SEGMENTS = 32;
    private static final int MAX_SEGMENT_BYTES = 1024;

    private final WeirClient weir;
    private final OnFailure onFailure;
    private final FailureLog log =
            new FailureLog("no answer from weir", "WEIR IS SET UP WRONGLY, NO REQUEST IS CHECKED");

    private Guard(WeirClient weir, OnFailure onFailure) {
        this.weir = weir;
        this.onFailure = onFailure;
    }

    /**
     * Fails open: if the service does not decide, requests pass, unless {@linkplain Check#withOnFailure their check} says
     * {@link OnFailure#DENY}.
     *
     * @param weir the client
     * @return a guard that fails open
     */
    public static Guard failingOpen(WeirClient weir) {
        return new Guard(weir, OnFailure.ALLOW);
    }

    /**
     * Fails closed: if the service does not decide, requests are refused, unless {@linkplain Check#withOnFailure their
     * check} says {@link OnFailure#ALLOW}.
     *
     * @param weir the client
     * @return a guard that fails closed
     */
    public static Guard failingClosed(WeirClient weir) {
        return new Guard(weir, OnFailure.DENY);
    }

    /**
     * Decides a request. If the server call of the current {@link Context} ends while the request waits, or the thread is
     * interrupted, it does not pass: 503.
     *
     * @param check the check of the request
     * @return whether the request passes, and the answer if it does not
     */
    public Verdict judge(Check check) {
        try {
            var decision = weir.check(guarded(check));
            return waited(decision.waitFor()) ? decided(decision) : Verdict.undecided(Map.of());
        } catch (WeirException error) {
            return undecided(check, error);
        }
    }

    /**
     * As {@link #judge}, without blocking.
     *
     * @param check the check of the request
     * @return whether the request passes, and the answer if it does not
     */
    public CompletableFuture<Verdict> judgeAsync(Check check) {
        return weir.checkAsync(guarded(check))
                .thenCompose(decision -> weir.later(decision, decision.waitFor()))
                .handle((decision, failure) ->
                        failure == null ? decided(decision) : undecided(check, Caller.error(failure)));
    }

    /** Waits, and returns whether neither the server call was cancelled nor the thread interrupted. */
    private static boolean waited(Duration wait) {
        if (wait.isZero()) {
            return true;
        }
        var ended = new CountDownLatch(1);
        Context.CancellationListener listener = cancelled -> ended.countDown();
        var serverCall = Context.current();
        serverCall.addListener(listener, Runnable::run);
        try {
            return !ended.await(wait.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            serverCall.removeListener(listener);
        }
    }

    private static Check guarded(Check check) {
        return check.withKey(repaired(check.key())).withLevels().withOnFailure(OnFailure.ERROR);
    }

    private static Verdict decided(Decision decision) {
        var headers = RateLimitHeaders.of(decision);
        return decision.allowed() ? Verdict.pass(headers, Optional.of(decision)) : Verdict.refused(headers, decision);
    }

    private Verdict undecided(Check check, WeirException error) {
        log.add(error);
        var action = check.onFailure().orElse(onFailure);
        return action == OnFailure.DENY
                ? Verdict.undecided(RateLimitHeaders.retryAfter(error.retryAfter().orElse(Duration.ZERO)))
                : Verdict.pass(Map.of(), Optional.empty());
    }

    private static List<String> repaired(List<String> key) {
        return key.isEmpty() ? List.of("-") : key.stream().limit(MAX_SEGMENTS).map(Guard::repaired).toList();
    }

    private static String repaired(String segment) {
        if (segment.isEmpty()) {
            return "-";
        }
        var bytes = segment.getBytes(StandardCharsets.UTF_8);
        if (bytes.length <= MAX_SEGMENT_BYTES) {
            return segment;
        }
        // Not within a character: in UTF-8 all bytes of one after its first are 10xxxxxx.
        var end = MAX_SEGMENT_BYTES;
        while ((bytes[end] & 0xC0) == 0x80) {
            end--;
        }
        return new String(bytes, 0, end, StandardCharsets.UTF_8);
    }
}
