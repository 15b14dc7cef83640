package weir_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
)

// BenchmarkCheck measures checks from so many goroutines: nanoseconds a check by all of them (the inverse of checks a second), and
// the latency that one check adds.
func BenchmarkCheck(b *testing.B) {
	server := weirtest.Start(b, weirtest.Limits)
	for _, goroutines := range []int{1, 64} {
		for _, form := range []struct {
			name    string
			options []weir.Option
		}{
			{"unary", []weir.Option{weir.WithRetries(0)}},
			{"unary-with-id", nil},
			{"coalesced", []weir.Option{weir.WithRetries(0), weir.WithCoalescing(0)}},
			{"coalesced-with-id", []weir.Option{weir.WithCoalescing(0)}},
		} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", form.name, goroutines), func(b *testing.B) {
				client := connect(b, server.Grpc, form.options...)
				check(b, client, user, weir.Cost(0))
				latencies := measure(b, client, goroutines)
				slices.Sort(latencies)
				b.ReportMetric(float64(len(latencies))/b.Elapsed().Seconds(), "checks/s")
				for _, percent := range []int{50, 99} {
					at := latencies[(len(latencies)-1)*percent/100]
					b.ReportMetric(float64(at.Nanoseconds())/1000, fmt.Sprintf("p%d-µs", percent))
				}
			})
		}
	}
}

// measure has so many goroutines share b.N checks, and returns how long each took.
func measure(b *testing.B, client *weir.Client, goroutines int) []time.Duration {
	latencies := make([]time.Duration, b.N)
	var next atomic.Int64
	var workers sync.WaitGroup
	b.ResetTimer()
	for range goroutines {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				began := time.Now()
				if _, err := client.Check(ctx, weir.Key{"user", "alex", "trade"}); err != nil {
					b.Error(err)
					return
				}
				latencies[i-1] = time.Since(began)
			}
		})
	}
	workers.Wait()
	b.StopTimer()
	return latencies
}
