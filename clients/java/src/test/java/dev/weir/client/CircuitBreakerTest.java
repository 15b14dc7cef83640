package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.CircuitBreaker.Outcome;
import dev.weir.client.CircuitBreaker.Permit;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class CircuitBreakerTest {
    private final AtomicLong nowNs = new AtomicLong();
    private final List<BreakerState> states = new ArrayList<>();
    private final CircuitBreaker breaker = new CircuitBreaker(2, Duration.ofSeconds(1), nowNs::get, states::add);

    private Permit call() {
        return breaker.admit().filter(permit -> !permit.isProbe()).orElseThrow();
    }

    private Permit probe() {
        return breaker.admit().filter(Permit::isProbe).orElseThrow();
    }

    private void rejected() {
        assertEquals(Optional.empty(), breaker.admit());
    }

    private void open() {
        breaker.record(call(), Outcome.OUTAGE);
        breaker.record(call(), Outcome.OUTAGE);
    }

    @Test
    void onlyFailuresInARowOpenIt() {
        breaker.record(call(), Outcome.OUTAGE);
        breaker.record(call(), Outcome.ANSWER);
        breaker.record(call(), Outcome.OUTAGE);
        breaker.record(call(), Outcome.OUTAGE);
        rejected();
        assertEquals(BreakerState.OPEN, breaker.state());
    }

    @Test
    void outagesOfCallsThatBeganBeforeTheLastAnswerDoNotCount() {
        var together = Stream.generate(this::call).limit(10).toList();
        breaker.record(call(), Outcome.ANSWER);
        together.forEach(permit -> breaker.record(permit, Outcome.OUTAGE));
        assertEquals(BreakerState.CLOSED, breaker.state());
        open();
        assertEquals(BreakerState.OPEN, breaker.state());
    }

    @Test
    void anAnswerToAnEarlierCallOutweighsTheOutageOfTheProbe() {
        var early = call();
        open();
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        var probe = probe();
        breaker.record(early, Outcome.ANSWER);
        breaker.record(probe, Outcome.OUTAGE);
        breaker.record(call(), Outcome.OUTAGE);
        assertEquals(BreakerState.CLOSED, breaker.state());
    }

    @Test
    void oneCallAtATimeProbes() {
        var early = call();
        open();
        nowNs.addAndGet(Duration.ofMillis(999).toNanos());
        rejected();
        // A call that was sent before: it does not delay the probe.
        breaker.record(early, Outcome.OUTAGE);
        nowNs.addAndGet(Duration.ofMillis(1).toNanos());
        var first = probe();
        rejected();
        breaker.record(first, Outcome.OUTAGE);
        rejected();
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        var second = probe();
        breaker.record(second, Outcome.ANSWER);
        call();
        assertEquals(
                List.of(
                        BreakerState.OPEN,
                        BreakerState.HALF_OPEN,
                        BreakerState.OPEN,
                        BreakerState.HALF_OPEN,
                        BreakerState.CLOSED),
                states);
    }

    @Test
    void aCancelledProbeLeavesItsPlaceToTheNextCall() {
        open();
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        breaker.record(probe(), Outcome.UNKNOWN);
        assertEquals(BreakerState.OPEN, breaker.state());
        probe();
        rejected();
    }

    @Test
    void anAnswerFreesThePlaceOfTheProbe() {
        for (var end : List.of(Outcome.UNKNOWN, Outcome.OUTAGE)) {
            var early = call();
            open();
            nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
            var former = probe();
            breaker.record(early, Outcome.ANSWER);
            open();
            nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
            var probe = probe();
            // It is not the place of this one any more.
            breaker.record(former, end);
            rejected();
            breaker.record(probe, Outcome.ANSWER);
        }
    }

    @Test
    void aCallThatIsNotTheProbeDoesNotGiveUpItsPlace() {
        // They are sent before it opens.
        var early = List.of(call(), call());
        open();
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        probe();
        breaker.record(early.get(0), Outcome.UNKNOWN);
        breaker.record(early.get(1), Outcome.OUTAGE);
        assertEquals(BreakerState.HALF_OPEN, breaker.state());
        rejected();
    }

    @Test
    void aListenerThatFailsLosesNoPermit() {
        var failing = new CircuitBreaker(1, Duration.ofSeconds(1), nowNs::get, state -> {
            throw new IllegalStateException("of the listener");
        });
        failing.record(failing.admit().orElseThrow(), Outcome.OUTAGE);
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        var probe = failing.admit().filter(Permit::isProbe).orElseThrow();
        failing.record(probe, Outcome.ANSWER);
        assertEquals(BreakerState.CLOSED, failing.state());
    }

    @Test
    void aProbeThatCannotBeSentLeavesItsPlaceToTheNextCall() {
        open();
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        var caller = new Caller(null, breaker, 0, Runnable::run);
        assertThrows(
                IllegalStateException.class,
                () -> caller.protect(Caller.after(Duration.ofHours(1)), () -> {
                    throw new IllegalStateException("of an interceptor");
                }));
        probe();
    }

    @Test
    void withoutAThresholdItNeverOpens() {
        var never = new CircuitBreaker(0, Duration.ZERO, nowNs::get, states::add);
        for (var i = 0; i < 100; i++) {
            never.record(never.admit().orElseThrow(), Outcome.OUTAGE);
        }
        assertTrue(never.admit().isPresent());
    }
}
