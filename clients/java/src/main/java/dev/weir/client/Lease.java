package dev.weir.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import dev.weir.client.LeaseMessages.Answer;
import dev.weir.client.LeaseMessages.Grant;
import dev.weir.client.LeaseMessages.Request;
import dev.weir.client.LeaseMessages.Terms;
import java.security.SecureRandom;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.CheckResponse;
import weir.v1.Weir.LeaseRequest;
import weir.v1.Weir.LeaseResponse;

/**
 * The lease of one key: its state machine and its messages. Its monitor is the lock of the state machine; the balance needs
 * none.
 */
final class Lease {
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final int HOLDER_BYTES = 16;
    private static final long TIMEOUT_US_MAX = 100_000;
    /** Bounds numbers from the service, so that a sum of a few does not overflow. */
    private static final long NUMBER_MAX = 1L << 60;

    final LeaseKey key;
    final LeaseMachine machine = new LeaseMachine();
    final LeaseBalance balance = machine.balance;
    /** Drawn for each state machine, since each numbers its leases from 1. */
    private final ByteString holder;
    /**
     * When a check of at least this cost passes, by the last refusal of the service, which started the present hold-off. 0:
     * unknown.
     */
    private long retryAt;
    private long retryCost;
    /** The lease is not in the table any more. */
    boolean isDropped;

    Lease(LeaseKey key) {
        this.key = key;
        var bytes = new byte[HOLDER_BYTES];
        RANDOM.nextBytes(bytes);
        holder = ByteString.copyFrom(bytes);
    }

    /** Records when the service lets a check of this cost pass. */
    void refused(long cost, CheckResponse decision, long now) {
        retryAt = now + us(decision.getRetryAfter());
        retryCost = cost;
    }

    /** Takes from an answer when a check passes. A renewal that was granted nothing does not change it. */
    void heard(long cost, LeaseResponse answer, long now) {
        if (cost > 0 && answer.hasDecision() && isRefusedForNow(answer.getDecision())) {
            refused(cost, answer.getDecision(), now);
        } else if (cost > 0 || !answer.hasGrant() || answer.getGrant().getUnits() != 0) {
            retryAt = 0;
        }
    }

    /** Returns the time after which a check passes that the hold-off refuses: at least the rest of the hold-off. */
    long retryAfter(long cost, long heldOff, long now) {
        return cost >= retryCost ? Math.max(heldOff, retryAt - now) : heldOff;
    }

    /** Returns the time for the answer to a request for which no check waits. */
    java.time.Duration timeout() {
        var ttl = machine.ttl();
        var us = ttl > 0 ? Math.min(TIMEOUT_US_MAX, ttl / 2) : TIMEOUT_US_MAX;
        return java.time.Duration.ofNanos(TimeUnit.MICROSECONDS.toNanos(us));
    }

    /** Returns the LeaseRequest of a request, with the check of its cost. */
    LeaseRequest message(Request request, boolean summaryOnly) {
        var check = CheckRequest.newBuilder()
                .setDomain(key.domain)
                .addAllKey(key.segments)
                .setCost(request.cost())
                .setMaxWait(Duration.getDefaultInstance())
                .setSummaryOnly(summaryOnly);
        return LeaseRequest.newBuilder()
                .setCheck(check)
                .setHolder(holder)
                .setLease(request.lease())
                .setSequence(request.sequence())
                .setSpent(request.spent())
                .setKept(request.kept())
                .setWant(request.want())
                .setGeneration(request.generation())
                .build();
    }

    /** Converts an answer. */
    static Answer answer(LeaseResponse response) {
        Optional<Grant> grant = Optional.empty();
        if (response.hasGrant()) {
            var from = response.getGrant();
            grant = Optional.of(new Grant(
                    units(from.getUnits()), units(from.getFree()), from.getIsKept(), from.getIsRecalled(), us(from.getRefusedFor())));
        }
        Optional<Terms> terms = Optional.empty();
        if (response.hasTerms()) {
            var from = response.getTerms();
            terms = Optional.of(
                    new Terms(from.getGeneration(), us(from.getTtl()), us(from.getHoldOff()), units(from.getScarce())));
        }
        var refused = response.hasDecision() && isRefusedForNow(response.getDecision());
        return new Answer(response.getLease(), response.getSequence(), refused, grant, terms);
    }

    /** Returns whether a check is refused, but may pass later. The service refuses one that can never pass, each time. */
    static boolean isRefusedForNow(CheckResponse decision) {
        return !decision.getAllowed() && !decision.getNever();
    }

    /** An unsigned 64-bit number of 2^63 or more is negative here. */
    private static long units(long number) {
        return number < 0 ? NUMBER_MAX : Math.min(number, NUMBER_MAX);
    }

    private static long us(Duration duration) {
        return Math.min(TimeUnit.SECONDS.toMicros(duration.getSeconds()), NUMBER_MAX) + duration.getNanos() / 1_000;
    }
}
