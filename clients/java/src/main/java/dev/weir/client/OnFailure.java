package dev.weir.client;

/** What a check does that the service did not decide because of an outage. */
public enum OnFailure {
    /** Throws a {@link WeirException}. */
    ERROR,
    /** Returns an allowed {@link Decision} (fail open). */
    ALLOW,
    /** Returns a refused {@link Decision} (fail closed). */
    DENY
}
