package dev.weir.client;

import dev.weir.client.LeaseMessages.Answer;
import dev.weir.client.LeaseMessages.AskService;
import dev.weir.client.LeaseMessages.OrdinaryCheck;
import dev.weir.client.LeaseMessages.Outcome;
import dev.weir.client.LeaseMessages.Request;
import dev.weir.client.LeaseMessages.Terms;
import java.util.Optional;

/**
 * The lease of one key: when to ask the service for units, by which request, and what an answer changes. It has no I/O, no clock
 * and no thread; {@code clients/traces/README.md} specifies it, and its traces are what the tests replay. All methods need the
 * caller's lock; {@link #balance} does not, and is tried first. Times are microseconds of the client's monotonic clock.
 */
final class LeaseMachine {
    /** The time within which checks of a key without terms are counted. */
    private static final long SLOT = 100_000;
    /** Checks within that time from which on a lease is worth its renewals. */
    private static final int HOT = 3;
    /** How long a key is left alone that cannot be leased, or whose terms are not answered. */
    private static final long ASK_AGAIN_AFTER = 1_000_000;
    /** How long a key is left alone after a lost request for its terms. */
    private static final long HOLD_OFF = 10_000;

    /** {@code COLD}: nothing is known of the key, or it cannot be leased. {@code REQUESTED}: for its terms. */
    private enum State {
        COLD,
        REQUESTED,
        HELD
    }

    final LeaseBalance balance = new LeaseBalance();
    private State state = State.COLD;
    /** The number of the newest lease, or of the request for terms. */
    private long number;
    /** Until then the key is not asked for. */
    private long quietUntil;
    /** Of a cold key: its checks within a slot. */
    private long slot;
    private int checks;
    /** Of one that is asked for: when, with which check. */
    private long sent;
    private long cost;
    /** Of a leased key; otherwise null. */
    private LeaseHolder holder;

    /** Decides a check that the balance cannot pay for. */
    Outcome onShortage(long checkCost, long now) {
        if (state == State.HELD) {
            return holder.onShortage(checkCost, now);
        }
        var waits = state == State.REQUESTED && now < sent + ASK_AGAIN_AFTER;
        if (checkCost <= 0 || waits || !isHot(now)) {
            return OrdinaryCheck.INSTANCE;
        }
        number++;
        state = State.REQUESTED;
        sent = now;
        cost = checkCost;
        return new AskService(new Request(number, 1, 0, 0, 0, 0, cost));
    }

    /** Counts a check of a key without terms: whether the key is worth a lease. */
    private boolean isHot(long now) {
        var current = Math.floorDiv(now, SLOT);
        checks = state == State.COLD && slot == current ? checks + 1 : 1;
        state = State.COLD;
        slot = current;
        return checks >= HOT && now >= quietUntil;
    }

    /** A spend has left the balance low: a request to send, with which no check waits. */
    Optional<Request> onLow(long now) {
        return state == State.HELD ? holder.onLow(now) : Optional.empty();
    }

    /** To be called every 20 ms: a request to send, with which no check waits. */
    Optional<Request> onTick(long now) {
        return balance.isDue(now) ? onLow(now) : Optional.empty();
    }

    /** An ordinary check was refused. */
    void checked(long checkCost, long checkSent, long now) {
        if (state == State.HELD) {
            holder.refused(checkCost, checkSent, now);
        }
    }

    /** A request was answered: maybe a request to send, which gives back what was held under other terms. */
    Optional<Request> answered(Answer answer, long now) {
        if (answer.lease() != number || state == State.COLD) {
            return Optional.empty();
        }
        Optional<Request> givesBack = Optional.empty();
        if (state == State.HELD) {
            if (answer.terms().filter(terms -> terms.generation() != holder.terms.generation()).isPresent()) {
                givesBack = holder.close(now);
            } else if (answer.grant().isPresent()) {
                holder.answered(answer, now);
                return Optional.empty();
            } else if (answer.terms().isPresent()) {
                holder.lost(answer.sequence());
                return Optional.empty();
            } else {
                // It is not renewed any more, and burns.
                holder.close(now);
            }
        }
        if (answer.terms().isPresent()) {
            begin(answer.terms().get(), answer.refused(), now);
        } else {
            forget(now + ASK_AGAIN_AFTER);
        }
        return givesBack;
    }

    private void begin(Terms terms, boolean isRefused, long now) {
        number++;
        holder = new LeaseHolder(balance, number, terms, now);
        if (state == State.REQUESTED && isRefused) {
            holder.refused(cost, sent, now);
        }
        state = State.HELD;
    }

    /** A request was answered by an error, or will not be. Whether it was served is not known, and need not be. */
    void lost(long lease, long sequence, long now) {
        if (lease != number) {
            return;
        }
        if (state == State.HELD) {
            holder.lost(sequence);
        } else if (state == State.REQUESTED) {
            forget(now + HOLD_OFF);
        }
    }

    /** Ends the lease: a request to send, which gives back what is held. */
    Optional<Request> close(long now) {
        Optional<Request> givesBack = state == State.HELD ? holder.close(now) : Optional.empty();
        forget(0);
        return givesBack;
    }

    /** Whether it may be forgotten. */
    boolean isIdle(long now) {
        return switch (state) {
            case HELD -> holder.isIdle(now);
            case REQUESTED -> now >= sent + ASK_AGAIN_AFTER;
            case COLD -> slot != Math.floorDiv(now, SLOT) && now >= quietUntil;
        };
    }

    /** How long units are held; 0 while that is not known. */
    long ttl() {
        return state == State.HELD ? holder.terms.ttl() : 0;
    }

    private void forget(long quiet) {
        state = State.COLD;
        slot = 0;
        checks = 0;
        holder = null;
        quietUntil = quiet;
    }
}
