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

// BenchmarkCheck measures checks from several goroutines: nanoseconds per check of all of them (the inverse of checks per second), and the
// latency of a check.
func BenchmarkCheck(b *testing.B) {
	server := weirtest.Start(b, weirtest.Limits)
	for _, goroutines := range []int{1, 64} {
		for _, form := range []struct {
			name    string
			key     weir.Key
			options []weir.Option
		}{
			{"unary", trade, nil},
			{"unary-no-retries", trade, []weir.Option{weir.WithRetries(0)}},
			{"coalesced", trade, []weir.Option{weir.WithCoalescing(0)}},
			{"coalesced-no-retries", trade, []weir.Option{weir.WithRetries(0), weir.WithCoalescing(0)}},
			{"leased", weir.Key{"ample", "alex"}, []weir.Option{weir.WithLease()}},
		} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", form.name, goroutines), func(b *testing.B) {
				client := connect(b, server.Grpc, form.options...)
				for range 10 {
					check(b, client, form.key)
				}
				latencies := measure(b, client, form.key, goroutines)
				slices.Sort(latencies)
				b.ReportMetric(float64(len(latencies))/b.Elapsed().Seconds(), "checks/s")
				for _, percent := range []int{50, 99} {
					at := latencies[(len(latencies)-1)*percent/100]
					b.ReportMetric(at.Seconds()*1e6, fmt.Sprintf("p%d-µs", percent))
				}
			})
		}
	}
}

// measure runs b.N checks from several goroutines, and returns their latencies.
func measure(b *testing.B, client *weir.Client, key weir.Key, goroutines int) []time.Duration {
	latencies := make([]time.Duration, b.N)
	var next atomic.Int64
	var workers sync.WaitGroup
	b.ResetTimer()
	for range goroutines {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				started := time.Now()
				if _, err := client.Check(ctx, key); err != nil {
					b.Error(err)
					return
				}
				latencies[i-1] = time.Since(started)
			}
		})
	}
	workers.Wait()
	b.StopTimer()
	return latencies
}
