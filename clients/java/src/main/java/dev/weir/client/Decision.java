package dev.weir.client;

import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * The answer to a check. The summary is taken over all limits on the key's path, each component independently, so its
 * numbers may come from different limits; {@code binding} has the numbers of the limit that decided.
 *
 * @param allowed whether the request may pass
 * @param limit the lowest limit on the path; 0 if nothing is limited
 * @param remaining the largest cost that would still pass now; of a {@link Source#LEASE} the units that the client holds
 * @param retryAfter refused only: the shortest time after which the same check passes; empty if no wait helps. Of a
 *     {@link Source#LEASE}, if the service has not sent that time, the time after which the client asks the service again
 * @param resetAfter the time until every limit is full again
 * @param waitFor how much later an allowed request must start (traffic shaping); above 0 only with
 *     {@link Check#withMaxWait(Duration)}
 * @param never whether the check is refused and no wait helps: the cost is above what a limit can ever allow
 * @param degraded whether the service decided without its shared store
 * @param leased whether a replica or the client decided with units that it leases, without a call of the shared store
 * @param repeated whether this is the answer to an earlier request with the same {@linkplain Check#withRequestId request id}.
 *     This one charged nothing
 * @param nextAfter if nothing is left, the shortest time after which a unit is left
 * @param binding the limit that decided; only {@linkplain Check#withLevels() with levels}
 * @param levels all limits on the path, root first; only {@linkplain Check#withLevels() with levels}
 * @param override the id of the operator's override that applies, or of the ban that refused the check, if any
 * @param banReason the operator's reason for the ban that refused the check, if any. A ban without an end is
 *     {@code never}
 * @param source who decided
 * @param error of a {@link Source#FALLBACK} the reason why the service did not decide
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
        boolean repeated,
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

    /** Allowed by a lease, which has that many units left. */
    static Decision leased(long left) {
        return local(true, left, Optional.empty(), Source.LEASE, Optional.empty());
    }

    /** Refused by a lease for that time. */
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
                false,
                source == Source.LEASE,
                false,
                Optional.empty(),
                Optional.empty(),
                List.of(),
                Optional.empty(),
                Optional.empty(),
                source,
                error);
    }
}
