package dev.weir.client;

import static dev.weir.client.Wire.duration;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.LimitSpec;

/**
 * A check: whether {@code cost} units may pass under a key. Immutable: each {@code with} method returns another check.
 *
 * <pre>{@code
 * var upload = Check.of("tenant", "acme").withDomain("uploads").withCost(4096);
 * }</pre>
 */
public final class Check {
    private static final com.google.protobuf.Duration NO_WAIT = duration(Duration.ZERO);
    /** The largest cost of a check, and the most units that a request of a lease may want or keep. */
    static final long MAX_COST = 1L << 32;

    private final CheckRequest request;
    private final Duration deadline;
    private final OnFailure onFailure;
    /** Null: the client's setting applies. */
    private final Boolean lease;
    /** Created on first use. Two threads may create it at the same time, which is harmless. */
    private LeaseKey leaseKey;

    private Check(CheckRequest request, Duration deadline, OnFailure onFailure, Boolean lease) {
        this.request = request;
        this.deadline = deadline;
        this.onFailure = onFailure;
        this.lease = lease;
    }

    /**
     * Returns a check of one unit in the default domain.
     *
     * @param key the path, root first: 1 to 32 segments of 1 to 1,024 bytes each
     * @return the check
     */
    public static Check of(String... key) {
        return of(List.of(key));
    }

    /**
     * Returns a check of one unit in the default domain.
     *
     * @param key the path, root first: 1 to 32 segments of 1 to 1,024 bytes each
     * @return the check
     */
    public static Check of(List<String> key) {
        // With a maximum wait of 0 a limit that shapes traffic refuses instead of answering with a wait.
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
     * Sets the domain whose policy decides. Default: empty, the default domain.
     *
     * @param domain its name
     * @return a check in that domain
     */
    public Check withDomain(String domain) {
        return with(request.toBuilder().setDomain(domain));
    }

    /**
     * Sets the units to charge. Default 1. 0 is a preview: read-only, charges nothing. A negative cost is a refund.
     *
     * @param units -2^32 to 2^32
     * @return a check with that cost
     */
    public Check withCost(long units) {
        return with(request.toBuilder().setCost(units));
    }

    /**
     * Replaces the limits of the domain's policy for this check, with the rule {@link Charge#ALL_OR_NOTHING}.
     *
     * @param limits up to 16; none: the check is not limited
     * @return a check with these limits
     */
    public Check withLimits(Limit... limits) {
        return withLimits(Charge.ALL_OR_NOTHING, List.of(limits));
    }

    /**
     * Replaces the limits of the domain's policy for this check.
     *
     * @param charge the charging rule when one of them refuses
     * @param limits up to 16; none: the check is not limited
     * @return a check with these limits
     */
    public Check withLimits(Charge charge, List<Limit> limits) {
        var spec = LimitSpec.newBuilder().setCharge(Wire.charge(charge));
        limits.forEach(limit -> spec.addLimits(limit.message()));
        return with(request.toBuilder().setLimitSpec(spec));
    }

    /**
     * Sets the longest wait that the client accepts from limits that shape traffic; {@link Decision#waitFor()} is the wait.
     * Default 0: they refuse instead. A {@link Guard} waits before the request passes.
     *
     * @param wait at most one day
     * @return a check that may be answered with a wait
     */
    public Check withMaxWait(Duration wait) {
        return with(request.toBuilder().setMaxWait(duration(wait)));
    }

    /**
     * Divides the counts of all limits that the check meets, for plans and tiers: 0.5 allows twice as much, 2 half as much,
     * 0 lifts the limits.
     *
     * @param factor 0 or above
     * @return a check with that factor
     */
    public Check withFactor(double factor) {
        return with(request.toBuilder().setFactor(factor));
    }

    /**
     * Makes a dry run: it is answered as the same check would be now, but charges nothing.
     *
     * @return a dry run of this check
     */
    public Check asDryRun() {
        return with(request.toBuilder().setDryRun(true));
    }

    /**
     * Sets the idempotency key: the service charges a check with the same id once, however often it is sent. By default the
     * client draws an id itself if it may retry the call.
     *
     * @param id 1 to 64 random bytes
     * @return a check with that id
     */
    public Check withRequestId(String id) {
        return with(request.toBuilder().setRequestId(id));
    }

    /**
     * Requests {@link Decision#levels()} and {@link Decision#binding()}.
     *
     * @return a check whose decision has levels
     */
    public Check withLevels() {
        return with(request.toBuilder().setSummaryOnly(false));
    }

    /**
     * Overrides the client's deadline, retries included.
     *
     * @param timeout at most a day counts; with 0 or less the check fails, and is not sent
     * @return a check with that deadline
     */
    public Check withDeadline(Duration timeout) {
        return new Check(request, Objects.requireNonNull(timeout), onFailure, lease);
    }

    /**
     * Overrides the client's setting for outages.
     *
     * @param action the result if the service does not decide, in an outage
     * @return a check with that setting
     */
    public Check withOnFailure(OnFailure action) {
        return new Check(request, deadline, Objects.requireNonNull(action), lease);
    }

    /**
     * Overrides the client's {@link WeirClientBuilder#lease()} for this check. Batches, reservations and slots ignore it,
     * and so do checks with a cost below 1, limits, a maximum wait, a factor or a request id, and dry runs.
     *
     * @param use whether a lease may decide the check
     * @return a check with that setting
     */
    public Check withLease(boolean use) {
        return new Check(request, deadline, onFailure, use);
    }

    /**
     * Returns the path, root first.
     *
     * @return its segments
     */
    public List<String> key() {
        return request.getKeyList();
    }

    /**
     * Returns the domain whose policy decides.
     *
     * @return its name; empty for the default domain
     */
    public String domain() {
        return request.getDomain();
    }

    /**
     * Returns the units to charge.
     *
     * @return the cost
     */
    public long cost() {
        return request.hasCost() ? request.getCost() : 1;
    }

    Check withKey(List<String> key) {
        return with(request.toBuilder().clearKey().addAllKey(key));
    }

    /** Returns whether a lease may decide the check, given the client's setting. */
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
