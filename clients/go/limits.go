package weir

import "github.com/OWNER/weir/clients/go/weirv1"

// Algorithm is the message of a rate-limiting algorithm.
type Algorithm interface {
	*weirv1.Gcra | *weirv1.TokenBucket | *weirv1.LeakyBucket | *weirv1.LeakyQueue | *weirv1.FixedWindow | *weirv1.SlidingLog |
		*weirv1.SlidingWindow | *weirv1.SlidingBuckets | *weirv1.Decay | *weirv1.SmoothBursty | *weirv1.WarmingUp | *weirv1.Cycle |
		*weirv1.LegacyBucket | *weirv1.Concurrency
}

// NewLimit is a limit for the option Limits:
//
//	weir.NewLimit(&weirv1.TokenBucket{Capacity: 10, Count: 10, Period: durationpb.New(time.Minute)})
//
// It covers the whole key. Set Name, Depth and Shadow on the result.
func NewLimit[A Algorithm](algorithm A) *weirv1.Limit {
	limit := &weirv1.Limit{}
	switch a := any(algorithm).(type) {
	case *weirv1.Gcra:
		limit.Algorithm = &weirv1.Limit_Gcra{Gcra: a}
	case *weirv1.TokenBucket:
		limit.Algorithm = &weirv1.Limit_TokenBucket{TokenBucket: a}
	case *weirv1.LeakyBucket:
		limit.Algorithm = &weirv1.Limit_LeakyBucket{LeakyBucket: a}
	case *weirv1.LeakyQueue:
		limit.Algorithm = &weirv1.Limit_LeakyQueue{LeakyQueue: a}
	case *weirv1.FixedWindow:
		limit.Algorithm = &weirv1.Limit_FixedWindow{FixedWindow: a}
	case *weirv1.SlidingLog:
		limit.Algorithm = &weirv1.Limit_SlidingLog{SlidingLog: a}
	case *weirv1.SlidingWindow:
		limit.Algorithm = &weirv1.Limit_SlidingWindow{SlidingWindow: a}
	case *weirv1.SlidingBuckets:
		limit.Algorithm = &weirv1.Limit_SlidingBuckets{SlidingBuckets: a}
	case *weirv1.Decay:
		limit.Algorithm = &weirv1.Limit_Decay{Decay: a}
	case *weirv1.SmoothBursty:
		limit.Algorithm = &weirv1.Limit_SmoothBursty{SmoothBursty: a}
	case *weirv1.WarmingUp:
		limit.Algorithm = &weirv1.Limit_WarmingUp{WarmingUp: a}
	case *weirv1.Cycle:
		limit.Algorithm = &weirv1.Limit_Cycle{Cycle: a}
	case *weirv1.LegacyBucket:
		limit.Algorithm = &weirv1.Limit_LegacyBucket{LegacyBucket: a}
	case *weirv1.Concurrency:
		limit.Algorithm = &weirv1.Limit_Concurrency{Concurrency: a}
	}
	return limit
}
