package dev.weir.client;

/** The state of a client's circuit breaker. */
public enum BreakerState {
    /** Calls go to the service. */
    CLOSED,
    /** Calls fail at once. */
    OPEN,
    /** One call probes the service, and all others fail at once. */
    HALF_OPEN
}
