package dev.weir.client;

/** The state of a client's circuit breaker. */
public enum BreakerState {
    /** All calls are sent. */
    CLOSED,
    /** All calls fail immediately, without being sent. */
    OPEN,
    /** One call at a time probes whether the service is available again; all others fail immediately. */
    HALF_OPEN
}
