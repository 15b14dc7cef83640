package dev.weir.client;

import java.util.List;

/**
 * Observes calls with checks, and checks that leases decide, for metrics and traces; see
 * {@link dev.weir.client.otel.WeirTelemetry}.
 */
public interface Telemetry {
    /**
     * Called when a call starts, on the caller's thread.
     *
     * @param checks its checks
     * @return is called when the call ends
     */
    Observation begin(List<Check> checks);

    /**
     * Called when a lease has decided a check, without a call, on the caller's thread. The decision takes less than a
     * microsecond, so do not do more than count. By default does nothing.
     *
     * @param check the check
     * @param decision its decision
     */
    default void leased(Check check, Decision decision) {}

    /**
     * Called when a client is created, and when its circuit breaker has changed its state. Must not block.
     *
     * @param target the client's
     * @param state the new state
     */
    void breakerChanged(String target, BreakerState state);

    /** The observation of a call. */
    @FunctionalInterface
    interface Observation {
        /**
         * Called when the call has ended, on any thread. Must not block.
         *
         * @param results one for each check, in their order
         */
        void end(List<CheckResult> results);
    }

    /**
     * Returns a telemetry that records nothing.
     *
     * @return the default
     */
    static Telemetry none() {
        return new Telemetry() {
            @Override
            public Observation begin(List<Check> checks) {
                return results -> {};
            }

            @Override
            public void breakerChanged(String target, BreakerState state) {}
        };
    }
}
