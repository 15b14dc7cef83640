package dev.weir.client;

/** What becomes of a reservation that is not settled in time. */
public enum OnExpiry {
    /** What was reserved counts as spent. */
    KEEP,
    /** What was reserved is given back. */
    RELEASE
}
