package dev.weir.client;

import java.util.Optional;

/** Requests and answers of a lease's state machine. Times are microseconds. */
final class LeaseMessages {
    private LeaseMessages() {}

    /**
     * A LeaseRequest.
     *
     * @param generation the generation of the terms; 0: unknown
     * @param cost the cost of the check in the request; 0: none
     */
    record Request(long lease, long sequence, long spent, long kept, long want, long generation, long cost) {}

    /**
     * A LeaseResponse.
     *
     * @param refused whether the check was refused
     * @param grant empty if nothing was settled or granted
     * @param terms empty if the key cannot be leased
     */
    record Answer(long lease, long sequence, boolean refused, Optional<Grant> grant, Optional<Terms> terms) {}

    /**
     * A LeaseGrant.
     *
     * @param units additional units, beyond those kept
     * @param free free units after this grant
     * @param refusedFor the time for which a check of at least this cost is refused
     */
    record Grant(long units, long free, boolean isKept, boolean isRecalled, long refusedFor) {}

    /** The LeaseTerms of a key. */
    record Terms(long generation, long ttl, long holdOff, long scarce) {
        /** The largest difference in rate between the client's clock and the service's, in parts per million. */
        private static final long DRIFT_PPM = 10_000;

        /** Returns the time for which the units held should last at the present demand. */
        long horizon() {
            return 2 * ttl / 5;
        }

        /**
         * Returns the time, from when a request is sent, within which its granted units must be spent: the TTL less the
         * clock drift.
         */
        long usable() {
            return ttl - (ttl * DRIFT_PPM + 999_999) / 1_000_000;
        }

        /**
         * Returns the end of the hold-off after a refusal. It counts from the answer, since a busy service answers late and
         * would stay busy, but not longer than four hold-offs from the request, since an old refusal says nothing.
         */
        long heldOffUntil(long sent, long now) {
            return Math.min(now + holdOff, sent + 4 * holdOff);
        }
    }

    /** How to decide a check that the balance cannot pay. */
    sealed interface Outcome permits Refuse, AskService, OrdinaryCheck {}

    /** Refuse it locally. */
    record Refuse(long retryAfter) implements Outcome {}

    /** Send the request; its answer decides. */
    record AskService(Request request) implements Outcome {}

    /** By an ordinary check. If that is refused, call {@link LeaseMachine#checked}. */
    record OrdinaryCheck() implements Outcome {
        static final OrdinaryCheck INSTANCE = new OrdinaryCheck();
    }
}
