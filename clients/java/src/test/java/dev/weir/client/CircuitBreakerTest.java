package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.weir.client.CircuitBreaker.Outcome;
import dev.weir.client.CircuitBreaker.Permit;
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
        breaker.record(Permit.CALL, Outcome.OUTAGE);
        breaker.record(Permit.CALL, Outcome.OUTAGE);
    }

    @Test
    void onlyFailuresInARowOpenIt() {
        breaker.record(Permit.CALL, Outcome.OUTAGE);
        breaker.record(Permit.CALL, Outcome.ANSWER);
        breaker.record(Permit.CALL, Outcome.OUTAGE);
        assertEquals(Permit.CALL, breaker.admit());
        breaker.record(Permit.CALL, Outcome.OUTAGE);
        assertEquals(Permit.NONE, breaker.admit());
        assertEquals(BreakerState.OPEN, breaker.state());
    }

    @Test
    void oneCallAtATimeProbes() {
        open();
        nowNs.addAndGet(Duration.ofMillis(999).toNanos());
        assertEquals(Permit.NONE, breaker.admit());
        // A call that was sent before: it does not delay the probe.
        breaker.record(Permit.CALL, Outcome.OUTAGE);
        nowNs.addAndGet(Duration.ofMillis(1).toNanos());
        assertEquals(Permit.PROBE, breaker.admit());
        assertEquals(Permit.NONE, breaker.admit());
        breaker.record(Permit.PROBE, Outcome.OUTAGE);
        assertEquals(Permit.NONE, breaker.admit());
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        assertEquals(Permit.PROBE, breaker.admit());
        breaker.record(Permit.PROBE, Outcome.ANSWER);
        assertEquals(Permit.CALL, breaker.admit());
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
        assertEquals(Permit.PROBE, breaker.admit());
        breaker.record(Permit.PROBE, Outcome.UNKNOWN);
        assertEquals(BreakerState.OPEN, breaker.state());
        assertEquals(Permit.PROBE, breaker.admit());
        assertEquals(Permit.NONE, breaker.admit());
    }

    @Test
    void aCallThatIsNotTheProbeDoesNotGiveUpItsPlace() {
        open();
        nowNs.addAndGet(Duration.ofSeconds(1).toNanos());
        assertEquals(Permit.PROBE, breaker.admit());
        // They were sent before it opened.
        breaker.record(Permit.CALL, Outcome.UNKNOWN);
        breaker.record(Permit.CALL, Outcome.OUTAGE);
        assertEquals(BreakerState.HALF_OPEN, breaker.state());
        assertEquals(Permit.NONE, breaker.admit());
    }

    @Test
    void withoutAThresholdItNeverOpens() {
        var never = new CircuitBreaker(0, Duration.ZERO, nowNs::get, states::add);
        for (var i = 0; i < 100; i++) {
            never.record(Permit.CALL, Outcome.OUTAGE);
        }
        assertEquals(Permit.CALL, never.admit());
    }
}
