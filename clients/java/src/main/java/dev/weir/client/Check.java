package dev.weir.client;

import static dev.weir.client.Wire.duration;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.LimitSpec;

/**
 * A question to the service: may so many units pass under this key? Immutable: each {@code with} method returns another
 * check.
 *
 * <pre>{@code
 * var upload = Check.of("tenant", "acme").withDomain("uploads").withCost(4096);
 * }</pre>
 */
public final class Check {
    private static final com.google.protobuf.Duration NO_WAIT = duration(Duration.ZERO);
    /** The most units that a check may cost, and a request of a lease may want or keep. */
    static final long MAX_COST = 1L << 32;

    private final CheckRequest request;
    private final Duration deadline;
    private final OnFailure onFailure;
    /** Null: as the client says. */
    private final Boolean lease;
    /** Made by the first check that uses it; a second one made at the same time is as good. */
    private LeaseKey leaseKey;

    private Check(CheckRequest request, Duration deadline, OnFailure onFailure, Boolean lease) {
        this.request = request;
        this.deadline = deadline;
        this.onFailure = onFailure;
        this.lease = lease;
    }

    /**
     * A check of one unit in the default domain.
     *
     * @param key the path, root first: 1 to 32 segments of 1 to 1,024 bytes each
     * @return the check
     */
    public static Check of(String... key) {
        return of(List.of(key));
    }

    /**
     * A check of one unit in the default domain.
     *
     * @param key the path, root first: 1 to 32 segments of 1 to 1,024 bytes each
     * @return the check
     */
    public static Check of(List<String> key) {
        // A limit that shapes traffic refuses rather than answers with a wait, unless the caller asks for waits.
        var request = CheckRequest.newBuilder()
                .addAllKey(key)
                .setMaxWait(NO_WAIT)
                .setSummaryOnly(true)
                .build();
        return new Check(request, null, null, null);
    }

    private Check with(CheckRequest.Builder changed) {
        return new Check(changed.build(), deadline, onFailure, lease);
    }

    /**
     * The domain, whose policy decides. Empty, the default: the default domain.
     *
     * @param domain its name
     * @return a check in that domain
     */
    public Check withDomain(String domain) {
        return with(request.toBuilder().setDomain(domain));
    }

    /**
     * The units, by default 1. 0 is a preview, which charges nothing; a negative cost is a refund.
     *
     * @param units -2^32 to 2^32
     * @return a check of that cost
     */
    public Check withCost(long units) {
        return with(request.toBuilder().setCost(units));
    }

    /**
     * Limits of the caller's own, all or nothing, in place of those of the policy.
     *
     * @param limits up to 16; none: the check is not limited
     * @return a check with these limits
     */
    public Check withLimits(Limit... limits) {
        return withLimits(Charge.ALL_OR_NOTHING, List.of(limits));
    }

    /**
     * Limits of the caller's own, in place of those of the policy.
     *
     * @param charge what is charged when one of them refuses
     * @param limits up to 16; none: the check is not limited
     * @return a check with these limits
     */
    public Check withLimits(Charge charge, List<Limit> limits) {
        var spec = LimitSpec.newBuilder().setCharge(Wire.charge(charge));
        limits.forEach(limit -> spec.addLimits(limit.message()));
        return with(request.toBuilder().setLimitSpec(spec));
    }

    /**
     * The longest wait to accept from limits that shape traffic, by default none: {@link Decision#waitFor()} says how long
     * to wait.
     *
     * @param wait at most one day
     * @return a check that may be answered with a wait
     */
    public Check withMaxWait(Duration wait) {
        return with(request.toBuilder().setMaxWait(duration(wait)));
    }

    /**
     * Divides all limits that the check meets, for plans and tiers: 0.5 allows twice as much, 0 lifts them.
     *
     * @param factor 0 or above
     * @return a check with that factor
     */
    public Check withFactor(double factor) {
        return with(request.toBuilder().setFactor(factor));
    }

    /**
     * Would it pass, and when? Answers as the check would be answered now, and charges nothing.
     *
     * @return a dry run of this check
     */
    public Check asDryRun() {
        return with(request.toBuilder().setDryRun(true));
    }

    /**
     * The id under which the service charges this check once, however often it is asked. Without one the client draws an
     * id for each check that it may have to repeat.
     *
     * @param id 1 to 64 random bytes
     * @return a check with that id
     */
    public Check withRequestId(String id) {
        return with(request.toBuilder().setRequestId(id));
    }

    /**
     * Asks for {@link Decision#levels()} and {@link Decision#binding()}.
     *
     * @return a check whose decision has levels
     */
    public Check withLevels() {
        return with(request.toBuilder().setSummaryOnly(false));
    }

    /**
     * How long the check may take, in place of the client's deadline.
     *
     * @param timeout above 0
     * @return a check with that deadline
     */
    public Check withDeadline(Duration timeout) {
        return new Check(request, Objects.requireNonNull(timeout), onFailure, lease);
    }

    /**
     * What happens in an outage, in place of the client's setting.
     *
     * @param action what to do
     * @return a check that does that
     */
    public Check withOnFailure(OnFailure action) {
        return new Check(request, deadline, Objects.requireNonNull(action), lease);
    }

    /**
     * Whether a lease may decide the check, in place of the client's setting. Batches, reservations and slots ignore it, and so do
     * checks of a cost below 1, and those with limits of their own, a wait, a factor, a request id, and dry runs.
     *
     * @param use whether it may
     * @return a check that uses leases, or does not
     */
    public Check withLease(boolean use) {
        return new Check(request, deadline, onFailure, use);
    }

    /**
     * The path, root first.
     *
     * @return its segments
     */
    public List<String> key() {
        return request.getKeyList();
    }

    /**
     * The domain, whose policy decides.
     *
     * @return its name; empty for the default domain
     */
    public String domain() {
        return request.getDomain();
    }

    /**
     * The units.
     *
     * @return how many
     */
    public long cost() {
        return request.hasCost() ? request.getCost() : 1;
    }

    Check withKey(List<String> key) {
        return with(request.toBuilder().clearKey().addAllKey(key));
    }

    /** Whether a lease may decide it, where the client does so or not. */
    boolean mayUseLease(boolean clientDoes) {
        return (lease == null ? clientDoes : lease)
                && cost() > 0
                && cost() <= MAX_COST
                && !request.hasLimitSpec()
                && !request.hasFactor()
                && !request.getDryRun()
                && request.getRequestId().isEmpty()
                && request.getMaxWait().equals(NO_WAIT);
    }

    LeaseKey leaseKey() {
        var known = leaseKey;
        if (known == null) {
            known = new LeaseKey(domain(), key());
            leaseKey = known;
        }
        return known;
    }

    Optional<Duration> deadline() {
        return Optional.ofNullable(deadline);
    }

    Optional<OnFailure> onFailure() {
        return Optional.ofNullable(onFailure);
    }

    CheckRequest request() {
        return request;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Check check
                && request.equals(check.request)
                && Objects.equals(deadline, check.deadline)
                && onFailure == check.onFailure
                && Objects.equals(lease, check.lease);
    }

    @Override
    public int hashCode() {
        return Objects.hash(request, deadline, onFailure, lease);
    }

    @Override
    public String toString() {
        return "Check{key=%s, domain=%s, cost=%d}".formatted(key(), domain(), cost());
    }
}
