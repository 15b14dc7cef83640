package dev.weir.client;

/** What a check charges that one of its own limits refuses. */
public enum Charge {
    /** No limit. */
    ALL_OR_NOTHING,
    /** Each limit that alone would have allowed the check. */
    INDEPENDENT
}
