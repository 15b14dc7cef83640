package dev.weir.client;

import dev.weir.client.LeaseMessages.Answer;
import dev.weir.client.LeaseMessages.AskService;
import dev.weir.client.LeaseMessages.OrdinaryCheck;
import dev.weir.client.LeaseMessages.Outcome;
import dev.weir.client.LeaseMessages.Request;
import dev.weir.client.LeaseMessages.Terms;
import java.util.Optional;

/**
 * The state machine of the lease of one key: decides when to request units from the service, and applies the answers. It has
 * no I/O, no clock and no thread. {@code clients/traces/README.md} is its specification; the tests replay the traces there.
 * The caller must hold a lock for all methods, but not for {@link #balance}, which is tried first. Times are microseconds of
 * the client's monotonic clock.
 */
final class LeaseMachine {
    /** The time slot in which checks of a key without terms are counted. */
    private static final long SLOT = 100_000;
    /** The checks within a slot that make a key hot: worth a lease. */
    private static final int HOT = 3;
    /** The pause before the terms are requested again, of a key that cannot be leased, or whose request was not answered. */
    private static final long ASK_AGAIN_AFTER = 1_000_000;
    /** The pause after a lost request for the terms. */
    private static final long HOLD_OFF = 10_000;

    /**
     * {@code COLD}: the terms are unknown, or the key cannot be leased. {@code REQUESTED}: the terms are requested.
     * {@code HELD}: the key can be leased.
     */
    private enum State {
        COLD,
        REQUESTED,
        HELD
    }

    final LeaseBalance balance = new LeaseBalance();
    private State state = State.COLD;
    /** The number of the newest lease, or of the request for terms. */
    private long number;
    /** No lease is requested until then. */
    private long quietUntil;
    /** If cold: the current time slot, and its checks so far. */
    private long slot;
    private int checks;
    /** If requested: when the request was sent, and the cost of its check. */
    private long sent;
    private long cost;
    /** If held; otherwise null. */
    private LeaseHolder holder;

    /**
     * Decides a check that the balance cannot pay: it is refused for a time, or decided by a request or an ordinary check.
     */
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

    /** Counts a check of a key without terms. Returns whether the key is worth a lease. */
    private boolean isHot(long now) {
        var current = Math.floorDiv(now, SLOT);
        checks = state == State.COLD && slot == current ? checks + 1 : 1;
        state = State.COLD;
        slot = current;
        return checks >= HOT && now >= quietUntil;
    }

    /** To be called after a spend that has left the balance low. Returns a request to send, for which no check waits. */
    Optional<Request> onLow(long now) {
        return state == State.HELD ? holder.onLow(now) : Optional.empty();
    }

    /** To be called every 20 ms. Returns a request to send, for which no check waits. */
    Optional<Request> onTick(long now) {
        return balance.isDue(now) ? onLow(now) : Optional.empty();
    }

    /** To be called after a refused ordinary check. */
    void checked(long checkCost, long checkSent, long now) {
        if (state == State.HELD) {
            holder.refused(checkCost, checkSent, now);
        }
    }

    /** Applies an answer. May return a request to send, which returns the units of a lease that is not renewed any more. */
    Optional<Request> answered(Answer answer, long now) {
        if (answer.lease() != number || state == State.COLD) {
            return Optional.empty();
        }
        Optional<Request> givesBack = Optional.empty();
        if (state == State.HELD) {
            boolean ends = answer.terms()
                    .map(terms -> terms.generation() != holder.terms.generation())
                    .orElse(answer.grant().isEmpty());
            if (ends) {
                givesBack = holder.close(now);
            } else if (answer.grant().isPresent()) {
                holder.answered(answer, now);
                return Optional.empty();
            } else {
                holder.lost(answer.sequence());
                return Optional.empty();
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

    /**
     * To be called for a request that failed or will not be answered. It does not matter whether the service has carried it
     * out.
     */
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

    /** Ends the lease. May return a request to send, which returns the units held. */
    Optional<Request> close(long now) {
        Optional<Request> givesBack = state == State.HELD ? holder.close(now) : Optional.empty();
        forget(0);
        return givesBack;
    }

    /** Returns whether the lease may be dropped. */
    boolean isIdle(long now) {
        return switch (state) {
            case HELD -> holder.isIdle(now);
            case REQUESTED -> now >= sent + ASK_AGAIN_AFTER;
            case COLD -> slot != Math.floorDiv(now, SLOT) && now >= quietUntil;
        };
    }

    /** Returns the time for which units are held; 0 while unknown. */
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
