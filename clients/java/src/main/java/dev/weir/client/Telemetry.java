package dev.weir.client;

import java.util.List;

/** Told of every call with checks, and of checks that leases decide: for metrics and spans, as by {@link dev.weir.client.otel.WeirTelemetry}. */
public interface Telemetry {
    /**
     * A call begins, on the caller's thread.
     *
     * @param checks its checks
     * @return told how the call ends
     */
    Observation begin(List<Check> checks);

    /**
     * A lease has decided a check, without a call, on the caller's thread. Takes longer than the decision if it does anything
     * but count. By default nothing.
     *
     * @param check the check
     * @param decision its decision
     */
    default void leased(Check check, Decision decision) {}

    /**
     * The circuit breaker has changed its state. Must not block.
     *
     * @param state the new state
     */
    void breakerChanged(BreakerState state);

    /** A call that has begun. */
    @FunctionalInterface
    interface Observation {
        /**
         * The call has ended, on any thread. Must not block.
         *
         * @param results one for each check, in their order
         */
        void end(List<CheckResult> results);
    }

    /**
     * Records nothing.
     *
     * @return the telemetry of clients without one
     */
    static Telemetry none() {
        return new Telemetry() {
            @Override
            public Observation begin(List<Check> checks) {
                return results -> {};
            }

            @Override
            public void breakerChanged(BreakerState state) {}
        };
    }
}
