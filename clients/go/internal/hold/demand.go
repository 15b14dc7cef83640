package hold

// MaxCost is the most units that a check may cost, and a request may want or keep.
const MaxCost = 1 << 32

// The time over which demand is averaged.
const averagedOver = 100_000

// demand is the units asked for in a microsecond: a moving average, to which recent ones count most.
type demand struct {
	rate float64
	at   int64
}

// count adds units that were asked for since the last time.
func (d *demand) count(units, now int64) {
	passed := float64(max(now-d.at, 0))
	// The conversion forbids a fused multiply-add, which would round otherwise than other languages do.
	d.rate = (float64(d.rate*averagedOver) + float64(units)) / (averagedOver + passed)
	d.at = now
}

// within is the units that will be asked for within a time, rounded down; at most as many as a request may want.
func (d *demand) within(time int64) int64 { return int64(min(d.rate*float64(time), MaxCost)) }
