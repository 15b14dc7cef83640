package dev.weir.client;

import java.time.Duration;
import java.util.Optional;

/**
 * The decision of one limit.
 *
 * @param name the limit's name
 * @param depth the number of key segments that it covers
 * @param shadow whether it is a shadow limit (dry run), which never refuses
 * @param allowed whether this limit alone allows the check
 * @param limit the most units that it allows in one burst
 * @param remaining the largest cost that it would still allow now; of a concurrency limit, the free slots, of which a
 *     request takes one
 * @param retryAfter refused only: the shortest time after which it would allow the check; empty if no wait helps
 * @param resetAfter the time until it is full again
 * @param waitFor how much later an allowed request must start
 * @param never whether the check is refused and no wait helps
 * @param nextAfter if nothing is left, the shortest time after which a unit is left
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
