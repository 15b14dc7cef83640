package dev.weir.client;

/** Who made a decision. */
public enum Source {
    /** The service. */
    SERVICE,
    /** This client, by {@link OnFailure}, since the service did not answer. */
    FALLBACK,
    /** This client, by units that it holds: {@link WeirClientBuilder#lease()}. */
    LEASE
}
