package hold

import (
	"math"
	"sync/atomic"
)

// Balance holds the units that may be spent until a deadline. Spending takes no lock and allocates nothing.
type Balance struct {
	units    atomic.Int64
	deadline atomic.Int64
	// A renewal is due if fewer units than this are left.
	low atomic.Int64
	// A renewal is due from this moment on.
	renewAt atomic.Int64
}

// Spending is the outcome of Balance.Spend.
type Spending int

const (
	// Short: the balance cannot pay. Call Lease.Short.
	Short Spending = iota
	// Spent: paid.
	Spent
	// Low: paid, and a renewal is due. Call Lease.Low.
	Low
)

// Spend takes cost units and returns the units left. A caller that is delayed between reading its clock and this call may spend units that
// are burnt meanwhile. The service has charged them by then.
func (b *Balance) Spend(cost, now int64) (outcome Spending, left int64) {
	if cost <= 0 || b.over(now) {
		return Short, 0
	}
	for {
		units := b.units.Load()
		if units < cost {
			return Short, 0
		}
		left = units - cost
		if !b.units.CompareAndSwap(units, left) {
			continue
		}
		if left < b.low.Load() || b.due(now) {
			return Low, left
		}
		return Spent, left
	}
}

// Units returns the units left.
func (b *Balance) Units() int64 { return b.units.Load() }

// empty takes all units out and returns them.
func (b *Balance) empty() int64 { return b.units.Swap(0) }

// takeAbove takes all units above kept out and returns them.
func (b *Balance) takeAbove(kept int64) int64 {
	for {
		units := b.units.Load()
		if units <= kept {
			return 0
		}
		if b.units.CompareAndSwap(units, kept) {
			return units - kept
		}
	}
}

// fill adds units and sets the deadline of all units.
func (b *Balance) fill(units, deadline int64) {
	// A caller that sees the new deadline must also see that burnt units were taken out before.
	b.deadline.Store(deadline)
	b.units.Add(units)
}

func (b *Balance) over(now int64) bool { return now >= b.deadline.Load() }

func (b *Balance) due(now int64) bool { return now >= b.renewAt.Load() }

// watch sets when Spend returns Low.
func (b *Balance) watch(low, renewAt int64) {
	b.low.Store(low)
	b.renewAt.Store(renewAt)
}

// unwatch stops Spend from returning Low.
func (b *Balance) unwatch() { b.watch(math.MinInt64, math.MaxInt64) }
