package dev.weir.client;

import java.util.List;

/** The key of a lease: domain and segments, with their hash. */
final class LeaseKey {
    final String domain;
    final List<String> segments;
    private final int hash;

    /** The segments must be immutable. */
    LeaseKey(String domain, List<String> segments) {
        this.domain = domain;
        this.segments = segments;
        hash = 31 * domain.hashCode() + segments.hashCode();
    }

    @Override
    public boolean equals(Object other) {
        return this == other
                || other instanceof LeaseKey key
                        && hash == key.hash
                        && domain.equals(key.domain)
                        && segments.equals(key.segments);
    }

    @Override
    public int hashCode() {
        return hash;
    }
}
