package hold

// The most by which clocks of the client and of the service differ in rate.
const driftPPM = 10_000

// holder asks for units of a key whose terms are known. Its fields say what the service was told; only an answer to the pending request
// changes them.
type holder struct {
	terms    Terms
	number   int64
	sequence int64
	pending  *pending
	// The last request was lost, and may have been served.
	unsettled bool
	// All units that were ever put in the balance and not taken back unspent. Those that are not in it are spent.
	taken  int64
	demand demand
	// Units spent that the demand knows of.
	counted int64
	// Checks of at least this cost are refused until then. 0: none.
	refusedCost, refusedUntil int64
}

// pending is a request under way.
type pending struct {
	sequence, spent, want, cost, sent int64
}

func newHolder(number int64, terms Terms, now int64) holder {
	return holder{number: number, terms: terms, demand: demand{at: now}}
}

// horizon is how long a hold should last at the present demand.
func (h *holder) horizon() int64 { return 2 * h.terms.TTL / 5 }

// usable is the time from sending a request to when what it brought must be spent.
func (h *holder) usable() int64 {
	return h.terms.TTL - (h.terms.TTL*driftPPM+999_999)/1_000_000
}

// heldOffUntil is until when checks are refused after a refusal. From the answer on, since a busy service answers late and would stay
// busy; but a refusal that is old tells nothing.
func (h *holder) heldOffUntil(sent, now int64) int64 {
	return min(now+h.terms.HoldOff, sent+4*h.terms.HoldOff)
}

func (h *holder) short(b *Balance, cost, now int64) (Outcome, int64, Request) {
	h.count(b, max(cost, 0), now)
	waits := h.waits(b, now)
	if h.refusedCost > 0 && cost >= h.refusedCost {
		until := h.refusedUntil
		if waits && now >= until {
			// One request asks for all checks, which wait for its answer at most as long again.
			until += h.terms.HoldOff
		}
		if now < until {
			return Refuse, until - now, Request{}
		}
	}
	want := h.demand.within(h.horizon())
	if waits || want < 2 && b.Units() == 0 {
		return Check, 0, Request{}
	}
	// The request may need what is held, so all of that goes back with it.
	h.taken -= b.empty()
	return Ask, 0, h.request(b, 0, want, cost, now)
}

func (h *holder) low(b *Balance, now int64) (Request, bool) {
	if h.waits(b, now) {
		return Request{}, false
	}
	h.count(b, 0, now)
	if b.over(now) {
		h.taken -= b.empty()
	}
	target := h.demand.within(h.horizon())
	units := b.Units()
	switch {
	case target < 2:
		// Less than two are not worth a hold.
		h.taken -= b.takeAbove(0)
	case units > 2*target:
		// Much more than is needed is of use to others.
		h.taken -= b.takeAbove(target)
	}
	if target < 2 && units == 0 {
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
	units := b.empty()
	h.taken -= units
	if units == 0 && h.pending == nil && !h.unsettled {
		return Request{}, false
	}
	return h.request(b, 0, 0, 0, now), true
}

func (h *holder) answered(b *Balance, answer *Answer, now int64) {
	p, grant := h.pending, answer.Grant
	if p == nil || p.sequence != answer.Sequence {
		return
	}
	h.pending = nil
	if !grant.IsKept {
		// Burnt, with whatever was spent of it since.
		b.empty()
		h.counted = min(h.counted, p.spent)
		h.taken = p.spent
	}
	if grant.Recalled {
		h.taken -= b.empty()
	}
	h.unsettled = false
	h.taken += grant.Units
	usable := h.usable()
	b.fill(grant.Units, p.sent+usable)
	scarce := grant.Units < p.want && grant.Units+grant.Free <= h.terms.Scarce
	low := b.Units() / 2
	if scarce {
		// Asking before it is needed brings nothing.
		low = 0
	}
	b.watch(low, p.sent+usable/2)
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
		h.pending, h.unsettled = nil, true
		// A service that cannot be reached fails at once, again and again.
		b.watch(0, p.sent+h.terms.HoldOff)
	}
}

func (h *holder) idle(b *Balance, now int64) bool {
	h.count(b, 0, now)
	return !h.waits(b, now) && b.Units() == 0 && h.demand.within(h.horizon()) == 0
}

// waits reports whether a request is pending. It is lost when its units would be of no use any more.
func (h *holder) waits(b *Balance, now int64) bool {
	if h.pending != nil && now >= h.pending.sent+h.terms.TTL {
		h.pending = nil
		b.watch(0, 0)
	}
	return h.pending != nil
}

func (h *holder) request(b *Balance, kept, want, cost, now int64) Request {
	b.unwatch()
	h.sequence++
	spent := h.taken - kept
	h.pending = &pending{sequence: h.sequence, spent: spent, want: want, cost: cost, sent: now}
	return Request{
		Lease: h.number, Sequence: h.sequence, Spent: spent, Kept: kept, Want: want, Generation: h.terms.Generation, Cost: cost,
	}
}

// count tells the demand of units that were spent since, and of these.
func (h *holder) count(b *Balance, units, now int64) {
	spent := max(h.taken-b.Units(), 0)
	h.demand.count(units+max(spent-h.counted, 0), now)
	h.counted = spent
}
