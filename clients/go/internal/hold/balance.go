package hold

import (
	"math"
	"sync/atomic"
)

// Balance is the units that may be spent until a deadline. Spending takes no lock and allocates nothing.
type Balance struct {
	units    atomic.Int64
	deadline atomic.Int64
	// Below so many units a renewal is due.
	low atomic.Int64
	// And from this moment on.
	renewAt atomic.Int64
}

// Spending is the outcome of Balance.Spend.
type Spending int

const (
	// Short: the balance cannot pay. Lease.Short decides.
	Short Spending = iota
	// Spent: paid.
	Spent
	// Low: paid, and Lease.Low must be called.
	Low
)

// Spend takes cost units, and says how many are left. A caller that is delayed between reading its clock and this may spend units that
// are burnt meanwhile: those are charged by then.
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

// Units are those left.
func (b *Balance) Units() int64 { return b.units.Load() }

// empty takes all units out.
func (b *Balance) empty() int64 { return b.units.Swap(0) }

// takeAbove takes out all units above kept.
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

// fill adds units, and sets until when all may be spent.
func (b *Balance) fill(units, deadline int64) {
	// A caller that sees the new deadline sees that burnt units have been taken out before.
	b.deadline.Store(deadline)
	b.units.Add(units)
}

func (b *Balance) over(now int64) bool { return now >= b.deadline.Load() }

func (b *Balance) due(now int64) bool { return now >= b.renewAt.Load() }

// watch sets when Spend answers Low.
func (b *Balance) watch(low, renewAt int64) {
	b.low.Store(low)
	b.renewAt.Store(renewAt)
}

// unwatch makes Spend answer Low no more.
func (b *Balance) unwatch() { b.watch(math.MinInt64, math.MaxInt64) }
