package dev.weir.client;

/** Who decided. */
public enum Source {
    /** Weir. */
    SERVICE,
    /** {@link OnFailure}, during an outage. */
    FALLBACK,
    /** The client, with units that it leases: {@link WeirClientBuilder#lease()}. */
    LEASE
}
