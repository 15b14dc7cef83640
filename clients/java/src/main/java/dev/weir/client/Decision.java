package dev.weir.client;

import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * The answer to a check. Without any limit on the key's path it is allowed, with a limit of 0.
 *
 * @param allowed whether the request may pass
 * @param limit the lowest limit of all levels
 * @param remaining the largest cost that would still pass now; by a {@link Source#LEASE} what the client still holds
 * @param retryAfter the shortest time after which a refused check passes; empty if no wait helps. By a {@link Source#LEASE}
 *     whose service has not told that the time after which the service is asked again
 * @param resetAfter the time until every level is full again
 * @param waitFor how much later the allowed request should start; above 0 only with
 *     {@link Check#withMaxWait(Duration)}
 * @param never whether the check is refused however long the caller waits
 * @param degraded whether it was decided without the shared store, by the service or by this client
 * @param leased whether it was decided from units leased of the shared store, by the service or by this client
 * @param nextAfter with nothing left, the shortest time after which a unit is left
 * @param binding the level that decided; only {@linkplain Check#withLevels() with levels}
 * @param levels every limit on the key's path, root first; only {@linkplain Check#withLevels() with levels}
 * @param override the id of the operator's override or ban that acted, if one did
 * @param banReason why an operator's ban refuses the check, if one does, whatever the limits say
 * @param source who made the decision
 * @param error why the service did not decide, if the source is {@link Source#FALLBACK}
 */
public record Decision(
        boolean allowed,
        long limit,
        long remaining,
        Optional<Duration> retryAfter,
        Duration resetAfter,
        Duration waitFor,
        boolean never,
        boolean degraded,
        boolean leased,
        Optional<Duration> nextAfter,
        Optional<Level> binding,
        List<Level> levels,
        Optional<String> override,
        Optional<String> banReason,
        Source source,
        Optional<WeirException> error) {

    static Decision fallback(boolean allowed, WeirException error) {
        return local(allowed, 0, Optional.empty(), Source.FALLBACK, Optional.of(error));
    }

    /** Paid by a lease, which has so many units left. */
    static Decision leased(long left) {
        return local(true, left, Optional.empty(), Source.LEASE, Optional.empty());
    }

    /** Refused by a lease, which asks the service again by that time. */
    static Decision heldOff(Duration retryAfter) {
        return local(false, 0, Optional.of(retryAfter), Source.LEASE, Optional.empty());
    }

    private static Decision local(
            boolean allowed, long remaining, Optional<Duration> retryAfter, Source source, Optional<WeirException> error) {
        return new Decision(
                allowed,
                0,
                remaining,
                retryAfter,
                Duration.ZERO,
                Duration.ZERO,
                false,
                source == Source.FALLBACK,
                source == Source.LEASE,
                Optional.empty(),
                Optional.empty(),
                List.of(),
                Optional.empty(),
                Optional.empty(),
                source,
                error);
    }
}
