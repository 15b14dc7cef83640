package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.CircuitBreaker.Outcome;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class CircuitBreakerTest {
    private final AtomicLong nowNs = new AtomicLong();
    private final List<BreakerState> states = new ArrayList<>();
    private final CircuitBreaker breaker = new CircuitBreaker(2, Duration.ofSeconds(1), nowNs::get, states::add);

    private void open() {
        breaker.record(Outcome.OUTAGE);
        breaker.record(Outcome.OUTAGE);
    }

    @Test
    void onlyFailuresInARowOpenIt() {
        breaker.record(Outcome.OUTAGE);
        breaker.record(Outcome.ANSWER);
        breaker.record(Outcome.OUTAGE);
        assertTrue(breaker.admits());
        breaker.record(Outcome.OUTAGE);
        assertFalse(breaker.admits());
        assertEquals(BreakerState.OPEN, breaker.state());
    }

    @Test
    void oneCallAtATimeProbes() {
        open();
        nowNs.addAndGet(Duration.ofMillis(999).toNanos());
        assertFalse(breaker.admits());
        // A call that was sent before: it does not delay the probe.
        breaker.record(Outcome.OUTAGE);
        nowNs.addAndGet(Duration.ofMillis(1).toNanos());
        assertTrue(breaker.admits());
        assertFalse(breaker.admits());
        breaker.record(Outcome.OUTAGE);
        assertFalse(breaker.admits());
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        assertTrue(breaker.admits());
        breaker.record(Outcome.ANSWER);
        assertTrue(breaker.admits());
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
        assertTrue(breaker.admits());
        breaker.record(Outcome.UNKNOWN);
        assertEquals(BreakerState.OPEN, breaker.state());
        assertTrue(breaker.admits());
        assertFalse(breaker.admits());
    }

    @Test
    void withoutAThresholdItNeverOpens() {
        var never = new CircuitBreaker(0, Duration.ZERO, nowNs::get, states::add);
        for (var i = 0; i < 100; i++) {
            never.record(Outcome.OUTAGE);
        }
        assertTrue(never.admits());
    }
}
