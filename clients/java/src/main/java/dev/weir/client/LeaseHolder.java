package dev.weir.client;

import dev.weir.client.LeaseMessages.Answer;
import dev.weir.client.LeaseMessages.AskService;
import dev.weir.client.LeaseMessages.OrdinaryCheck;
import dev.weir.client.LeaseMessages.Outcome;
import dev.weir.client.LeaseMessages.Refuse;
import dev.weir.client.LeaseMessages.Request;
import dev.weir.client.LeaseMessages.Terms;
import java.util.Optional;

/**
 * Requests units of a key whose terms are known. Its fields are what the service was told; only the answer to the pending
 * request changes them.
 */
final class LeaseHolder {
    private record Pending(Request request, long sent) {
        /** Returns whether the client holds no units once the request is carried out. */
        boolean onlyReturns() {
            return request.kept() == 0 && request.want() == 0;
        }
    }

    private final LeaseBalance balance;
    private final long number;
    final Terms terms;
    private final LeaseDemand demand;
    private long sequence;
    private Pending pending;
    /**
     * Until then the service may hold units that are neither in the balance nor spent: taken back, or granted by a request that was
     * lost. The next request that is answered returns them.
     */
    private long unsettledUntil = Long.MIN_VALUE;
    /**
     * All units that were ever put into the balance and not taken back unspent. Those that are not in the balance are spent.
     */
    private long taken;
    /** Spent units that the demand has counted. */
    private long counted;
    /** Checks of at least this cost are refused until then. 0: no refusal. */
    private long refusedCost;
    private long refusedUntil;
    /** No units are requested until then, since too many others hold some. */
    private long fullUntil = Long.MIN_VALUE;

    LeaseHolder(LeaseBalance balance, long number, Terms terms, long now) {
        this.balance = balance;
        this.number = number;
        this.terms = terms;
        demand = new LeaseDemand(now);
    }

    Outcome onShortage(long cost, long now) {
        count(Math.max(cost, 0), now);
        var waits = waits(now);
        if (refusedCost > 0 && cost >= refusedCost) {
            // While one request asks the service, all other checks wait for its answer, at most one more hold-off.
            var until = waits && now >= refusedUntil ? refusedUntil + terms.holdOff() : refusedUntil;
            if (now < until) {
                return new Refuse(until - now);
            }
        }
        var want = demand.within(terms.horizon());
        if (waits || now < fullUntil || want < 2 && balance.units() == 0) {
            return OrdinaryCheck.INSTANCE;
        }
        // The request may need the units held, so all of them are returned with it.
        takeBack(balance.empty(), now);
        return new AskService(request(0, want, cost, now));
    }

    Optional<Request> onLow(long now) {
        if (waits(now)) {
            return Optional.empty();
        }
        count(0, now);
        if (balance.isOver(now)) {
            takeBack(balance.empty(), now);
        }
        var target = demand.within(terms.horizon());
        // Fewer than two units are not worth a lease.
        var isWorthIt = target >= 2;
        if (!isWorthIt || balance.units() > 2 * target) {
            // Return the surplus, for other clients.
            takeBack(balance.takeAbove(isWorthIt ? target : 0), now);
        }
        if (!isWorthIt && now >= unsettledUntil) {
            balance.unwatch();
            return Optional.empty();
        }
        var kept = balance.units();
        return Optional.of(request(kept, isWorthIt ? Math.max(target - kept, 0) : 0, 0, now));
    }

    Optional<Request> close(long now) {
        balance.unwatch();
        takeBack(balance.empty(), now);
        return pending != null || now < unsettledUntil ? Optional.of(request(0, 0, 0, now)) : Optional.empty();
    }

    void answered(Answer answer, long now) {
        if (pending == null || pending.request.sequence() != answer.sequence()) {
            return;
        }
        var grant = answer.grant().orElseThrow();
        var request = pending.request;
        var sent = pending.sent;
        pending = null;
        unsettledUntil = Long.MIN_VALUE;
        if (!grant.isKept()) {
            // The kept units are burnt, and whatever was spent of them since is charged.
            balance.empty();
            counted = Math.min(counted, request.spent());
            taken = request.spent();
        }
        if (grant.isRecalled()) {
            takeBack(balance.empty(), now);
        }
        taken += grant.units();
        balance.fill(grant.units(), sent + terms.usable());
        var isFull = request.want() > 0 && grant.units() == 0 && grant.free() > 0 && balance.units() == 0;
        var isScarce = !isFull && grant.units() < request.want() && grant.units() + grant.free() <= terms.scarce();
        // If units are scarce, an earlier renewal would be granted nothing.
        balance.watch(isScarce ? 0 : balance.units() / 2, sent + terms.usable() / 2);
        if (isFull) {
            fullUntil = now + terms.ttl();
            balance.unwatch();
        }
        refusedCost = 0;
        var off = terms.heldOffUntil(sent, now);
        if (answer.refused()) {
            refuse(request.cost(), Math.max(sent + grant.refusedFor(), off));
        } else if (isScarce) {
            refuse(1, off);
        }
    }

    /** Records that the service has refused a check of this cost. */
    void refused(long cost, long sent, long now) {
        refuse(cost, terms.heldOffUntil(sent, now));
    }

    /** Refuses checks of at least this cost, unless the present refusal lasts longer. */
    private void refuse(long cost, long until) {
        if (cost > 0 && (refusedCost == 0 || refusedUntil < until)) {
            refusedCost = cost;
            refusedUntil = until;
        }
    }

    void lost(long lostSequence) {
        if (pending != null && pending.request.sequence() == lostSequence) {
            // Back off: a service that cannot be reached fails each request at once.
            balance.watch(0, pending.sent + (pending.onlyReturns() ? terms.ttl() / 4 : terms.holdOff()));
            giveUp();
        }
    }

    boolean isIdle(long now) {
        count(0, now);
        return !waits(now) && balance.units() == 0 && now >= unsettledUntil && demand.within(terms.horizon()) == 0;
    }

    /** Returns whether a request is pending. It is given up after the TTL, when its units could not be spent any more. */
    private boolean waits(long now) {
        if (pending != null && now >= pending.sent + terms.ttl()) {
            giveUp();
            balance.watch(0, 0);
        }
        return pending != null;
    }

    /**
     * Ends the pending request without an answer. The service may have carried it out until now, except that one which only returns
     * units leaves none.
     */
    private void giveUp() {
        if (!pending.onlyReturns()) {
            unsettledUntil = Math.max(unsettledUntil, pending.sent + 2 * terms.ttl());
        }
        pending = null;
    }

    private void takeBack(long units, long now) {
        if (units > 0) {
            taken -= units;
            unsettledUntil = Math.max(unsettledUntil, now + terms.ttl());
        }
    }

    private Request request(long kept, long want, long cost, long now) {
        balance.unwatch();
        sequence++;
        var request = new Request(number, sequence, taken - kept, kept, want, terms.generation(), cost);
        pending = new Pending(request, now);
        return request;
    }

    /** Adds to the demand the units spent since the last call, and these units. */
    private void count(long units, long now) {
        var spent = Math.max(taken - balance.units(), 0);
        demand.count(units + Math.max(spent - counted, 0), now);
        counted = spent;
    }
}
