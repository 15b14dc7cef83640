package dev.weir.client;

import java.util.Optional;

/** Requests and answers of a lease's machine. Times are microseconds. */
final class LeaseMessages {
    private LeaseMessages() {}

    /**
     * What the client sends.
     *
     * @param generation that of the terms; 0: none are known
     * @param cost that of the check which the request carries; 0: none
     */
    record Request(long lease, long sequence, long spent, long kept, long want, long generation, long cost) {}

    /**
     * The answer to a request.
     *
     * @param refused whether the check was refused
     * @param grant empty where nothing is settled
     * @param terms empty where the key cannot be leased
     */
    record Answer(long lease, long sequence, boolean refused, Optional<Grant> grant, Optional<Terms> terms) {}

    /**
     * What a request was granted.
     *
     * @param units in addition to those kept
     * @param free those left to others
     * @param refusedFor how long a check of at least this cost is refused
     */
    record Grant(long units, long free, boolean isKept, boolean isRecalled, long refusedFor) {}

    /** How a key is leased. */
    record Terms(long generation, long ttl, long holdOff, long scarce) {
        /** The most by which clocks of the client and of the service differ in rate. */
        private static final long DRIFT_PPM = 10_000;

        /** How long a hold should last at the present demand. */
        long horizon() {
            return 2 * ttl / 5;
        }

        /** From sending a request to when what it brought must be spent. */
        long usable() {
            return ttl - (ttl * DRIFT_PPM + 999_999) / 1_000_000;
        }

        /**
         * Until when checks are refused after a refusal. From the answer on, since a busy service answers late and would stay
         * busy; but a refusal that is old tells nothing.
         */
        long heldOffUntil(long sent, long now) {
            return Math.min(now + holdOff, sent + 4 * holdOff);
        }
    }

    /** How a check is decided that the balance cannot pay for. */
    sealed interface Outcome permits Refuse, AskService, OrdinaryCheck {}

    /** Refused, without asking. */
    record Refuse(long retryAfter) implements Outcome {}

    /** By this request. */
    record AskService(Request request) implements Outcome {}

    /** By an ordinary check, of whose refusal the machine must be told ({@link LeaseMachine#checked}). */
    record OrdinaryCheck() implements Outcome {
        static final OrdinaryCheck INSTANCE = new OrdinaryCheck();
    }
}
