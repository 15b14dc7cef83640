package dev.weir.client;

import java.time.Duration;
import java.util.Optional;

/**
 * The decision of one limit on the key's path.
 *
 * @param name the limit's name
 * @param depth the number of key segments that it covers
 * @param shadow whether it is a shadow limit, which never refuses
 * @param allowed whether this limit alone allows the check
 * @param limit the most units that it allows at once
 * @param remaining the largest cost that it would still allow now
 * @param retryAfter the shortest time after which it would allow a refused check; empty if no wait helps
 * @param resetAfter the time until it is full again
 * @param waitFor how much later the allowed request should start
 * @param never whether it refuses the check however long the caller waits
 * @param nextAfter with nothing left, the shortest time after which a unit is left
 */
public record Level(
        String name,
        int depth,
        boolean shadow,
        boolean allowed,
        long limit,
        long remaining,
        Optional<Duration> retryAfter,
        Duration resetAfter,
        Duration waitFor,
        boolean never,
        Optional<Duration> nextAfter) {}
