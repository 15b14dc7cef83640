package dev.weir.client;

/** The settlement of an expired reservation. */
public enum OnExpiry {
    /** The reserved units count as spent. */
    KEEP,
    /** The reserved units are refunded. */
    RELEASE
}
