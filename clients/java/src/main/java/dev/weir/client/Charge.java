package dev.weir.client;

/** The charging rule when one of several limits refuses. */
public enum Charge {
    /** A refused check charges no limit, except those with {@code charge_denied}. */
    ALL_OR_NOTHING,
    /** Each limit that alone would have allowed the check is charged. */
    INDEPENDENT
}
