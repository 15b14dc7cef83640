package hold

// The largest difference in rate between the client's clock and the service's, in parts per million.
const driftPPM = 10_000

// holder requests units of a key whose terms are known. Its fields are what the service was told; only the answer to the pending request
// changes them.
type holder struct {
	terms    Terms
	number   int64
	sequence int64
	pending  *pending
	// Until then the service may hold units that are neither in the balance nor spent: taken back, or granted by a request that was lost. The
	// next request that is answered returns them.
	unsettledUntil int64
	// All units that were ever put into the balance and not taken back unspent. Those that are not in the balance are spent.
	taken  int64
	demand demand
	// Spent units that the demand has counted.
	counted int64
	// Checks of at least this cost are refused until then. A cost of 0: no refusal.
	refusedCost, refusedUntil int64
	// No units are requested until then, since too many others hold some.
	fullUntil int64
}

// pending is a request in flight.
type pending struct {
	sequence, spent, kept, want, cost, sent int64
}

// onlyReturns reports whether the client holds no units once the request is carried out.
func (p *pending) onlyReturns() bool { return p.kept == 0 && p.want == 0 }

func newHolder(number int64, terms Terms, now int64) holder {
	return holder{number: number, terms: terms, demand: demand{at: now}}
}

// horizon is the time for which the units held should last at the present demand: 2/5 of the TTL.
func (h *holder) horizon() int64 { return 2 * h.terms.TTL / 5 }

// usable is the time, from when a request is sent, within which its granted units must be spent: the TTL less the clock drift.
func (h *holder) usable() int64 {
	return h.terms.TTL - (h.terms.TTL*driftPPM+999_999)/1_000_000
}

// heldOffUntil returns the end of the hold-off after a refusal. It counts from the answer, since a busy service answers late and would stay
// busy, but not longer than four hold-offs from the request, since an old refusal says nothing.
func (h *holder) heldOffUntil(sent, now int64) int64 {
	return min(now+h.terms.HoldOff, sent+4*h.terms.HoldOff)
}

func (h *holder) short(b *Balance, cost, now int64) (Outcome, int64, Request) {
	h.count(b, max(cost, 0), now)
	waits := h.waits(b, now)
	if h.refusedCost > 0 && cost >= h.refusedCost {
		until := h.refusedUntil
		if waits && now >= until {
			// While one request asks the service, all other checks wait for its answer, at most one more hold-off.
			until += h.terms.HoldOff
		}
		if now < until {
			return Refuse, until - now, Request{}
		}
	}
	want := h.demand.within(h.horizon())
	if waits || now < h.fullUntil || want < 2 && b.Units() == 0 {
		return Check, 0, Request{}
	}
	// The request may need the units held, so all of them are returned with it.
	h.takeBack(b.empty(), now)
	return Ask, 0, h.request(b, 0, want, cost, now)
}

func (h *holder) low(b *Balance, now int64) (Request, bool) {
	if h.waits(b, now) {
		return Request{}, false
	}
	h.count(b, 0, now)
	if b.over(now) {
		h.takeBack(b.empty(), now)
	}
	target := h.demand.within(h.horizon())
	switch {
	case target < 2:
		// Fewer than two units are not worth a lease.
		h.takeBack(b.empty(), now)
	case b.Units() > 2*target:
		// Return the surplus, for other clients.
		h.takeBack(b.takeAbove(target), now)
	}
	if target < 2 && now >= h.unsettledUntil {
		b.unwatch()
		return Request{}, false
	}
	kept, want := b.Units(), int64(0)
	if target >= 2 {
		want = max(target-kept, 0)
	}
	return h.request(b, kept, want, 0, now), true
}

func (h *holder) close(b *Balance, now int64) (Request, bool) {
	b.unwatch()
	h.takeBack(b.empty(), now)
	if h.pending == nil && now >= h.unsettledUntil {
		return Request{}, false
	}
	return h.request(b, 0, 0, 0, now), true
}

func (h *holder) answered(b *Balance, answer *Answer, now int64) {
	p, grant := h.pending, answer.Grant
	if p == nil || p.sequence != answer.Sequence {
		return
	}
	h.pending, h.unsettledUntil = nil, 0
	if !grant.IsKept {
		// The kept units are burnt, and whatever was spent of them since is charged.
		b.empty()
		h.counted = min(h.counted, p.spent)
		h.taken = p.spent
	}
	if grant.Recalled {
		h.takeBack(b.empty(), now)
	}
	h.taken += grant.Units
	usable := h.usable()
	b.fill(grant.Units, p.sent+usable)
	full := p.want > 0 && grant.Units == 0 && grant.Free > 0 && b.Units() == 0
	scarce := !full && grant.Units < p.want && grant.Units+grant.Free <= h.terms.Scarce
	low := b.Units() / 2
	if scarce {
		// An earlier renewal would be granted nothing.
		low = 0
	}
	b.watch(low, p.sent+usable/2)
	if full {
		h.fullUntil = now + h.terms.TTL
		b.unwatch()
	}
	h.refusedCost = 0
	switch off := h.heldOffUntil(p.sent, now); {
	case answer.Refused:
		h.refuse(p.cost, max(p.sent+grant.RefusedFor, off))
	case scarce:
		h.refuse(1, off)
	}
}

// refuse refuses checks of at least this cost, unless the present refusal lasts longer.
func (h *holder) refuse(cost, until int64) {
	if cost > 0 && (h.refusedCost == 0 || h.refusedUntil < until) {
		h.refusedCost, h.refusedUntil = cost, until
	}
}

func (h *holder) lost(b *Balance, sequence int64) {
	if p := h.pending; p != nil && p.sequence == sequence {
		h.giveUp()
		// Back off: a service that cannot be reached fails each request at once.
		delay := h.terms.HoldOff
		if p.onlyReturns() {
			delay = h.terms.TTL / 4
		}
		b.watch(0, p.sent+delay)
	}
}

func (h *holder) idle(b *Balance, now int64) bool {
	h.count(b, 0, now)
	return !h.waits(b, now) && b.Units() == 0 && now >= h.unsettledUntil && h.demand.within(h.horizon()) == 0
}

// waits reports whether a request is pending. It is given up after the TTL, when its units could not be spent any more.
func (h *holder) waits(b *Balance, now int64) bool {
	if h.pending != nil && now >= h.pending.sent+h.terms.TTL {
		h.giveUp()
		b.watch(0, 0)
	}
	return h.pending != nil
}

// giveUp ends the pending request without an answer. The service may have carried it out until now, except that one which only returns
// units leaves none.
func (h *holder) giveUp() {
	if !h.pending.onlyReturns() {
		h.unsettledUntil = max(h.unsettledUntil, h.pending.sent+2*h.terms.TTL)
	}
	h.pending = nil
}

func (h *holder) takeBack(units, now int64) {
	if units > 0 {
		h.taken -= units
		h.unsettledUntil = max(h.unsettledUntil, now+h.terms.TTL)
	}
}

func (h *holder) request(b *Balance, kept, want, cost, now int64) Request {
	b.unwatch()
	h.sequence++
	spent := h.taken - kept
	h.pending = &pending{sequence: h.sequence, spent: spent, kept: kept, want: want, cost: cost, sent: now}
	return Request{
		Lease: h.number, Sequence: h.sequence, Spent: spent, Kept: kept, Want: want, Generation: h.terms.Generation, Cost: cost,
	}
}

// count adds to the demand the units spent since the last call, and these units.
func (h *holder) count(b *Balance, units, now int64) {
	spent := max(h.taken-b.Units(), 0)
	h.demand.count(units+max(spent-h.counted, 0), now)
	h.counted = spent
}
