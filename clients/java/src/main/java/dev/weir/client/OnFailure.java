package dev.weir.client;

/** The result of a check that the service does not decide, in an outage. */
public enum OnFailure {
    /** Throws a {@link WeirException}. */
    ERROR,
    /** Returns an allowed {@link Decision} (fail open). */
    ALLOW,
    /** Returns a refused {@link Decision} (fail closed). */
    DENY
}
