package hold

// MaxCost is the largest cost of a check, and the most units that a request may want or keep.
const MaxCost = 1 << 32

// The averaging time of the demand, in µs.
const averagedOver = 100_000

// demand is a moving average of the requested units per µs, weighted towards recent checks.
type demand struct {
	rate float64
	at   int64
}

// count adds units that were requested since the last call.
func (d *demand) count(units, now int64) {
	passed := float64(max(now-d.at, 0))
	// The conversion forbids a fused multiply-add, whose rounding differs from that of other languages.
	d.rate = (float64(d.rate*averagedOver) + float64(units)) / (averagedOver + passed)
	d.at = now
}

// within returns the expected demand in a time (µs): units, rounded down, at most MaxCost.
func (d *demand) within(time int64) int64 { return int64(min(d.rate*float64(time), MaxCost)) }
