// A control plane by envoyproxy/go-control-plane that pushes a policy again and again to a Weir
// under load. It prints how long each push took until it was applied, and fails when one took over
// a second or a call failed. `./drill xds` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"sort"
	"strconv"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	node     = "drill"
	domain   = "edge"
	callers  = 8
	slowest  = time.Second
	pushWait = 50 * time.Millisecond
)

func main() {
	listen := flag.String("listen", "127.0.0.1:18000", "where the control plane listens")
	weir := flag.String("weir", "127.0.0.1:8081", "the service's gRPC port")
	pushes := flag.Int("pushes", 100, "how many policies are pushed")
	descriptors := flag.Int("descriptors", 1000, "descriptors of each policy")
	flag.Parse()
	if err := run(*listen, *weir, *pushes, *descriptors); err != nil {
		log.Fatal(err)
	}
}

func run(listen, weir string, pushes, descriptors int) error {
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	plane := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(plane, server.NewServer(context.Background(), snapshots, nil))
	go plane.Serve(listener)
	// Weir opens its ports once it has this.
	if err := push(snapshots, 1, descriptors); err != nil {
		return err
	}
	connection, err := grpc.NewClient(weir, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	client := rls.NewRateLimitServiceClient(connection)
	if err := waitFor(client, 1, time.Minute); err != nil {
		return err
	}
	var calls, failed atomic.Int64
	ended := make(chan struct{})
	for caller := range callers {
		go func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if _, err := ask(client, strconv.Itoa(caller), 1); err != nil {
					failed.Add(1)
					log.Print(err)
				}
				calls.Add(1)
			}
		}()
	}
	var took []time.Duration
	for version := 2; version <= pushes+1; version++ {
		since := time.Now()
		if err := push(snapshots, version, descriptors); err != nil {
			return err
		}
		if err := waitFor(client, uint32(version), time.Minute); err != nil {
			return err
		}
		took = append(took, time.Since(since))
		time.Sleep(pushWait)
	}
	close(ended)
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	most := took[len(took)-1]
	fmt.Printf("%d pushes of %d descriptors under %d calls: in force after %s (median), %s (most); %d calls failed\n",
		pushes, descriptors, calls.Load(), round(took[len(took)/2]), round(most), failed.Load())
	if most > slowest || failed.Load() > 0 {
		os.Exit(1)
	}
	return nil
}

func round(duration time.Duration) time.Duration {
	return duration.Round(100 * time.Microsecond)
}

// push sets the policy whose version is also the limit of key 0.
func push(snapshots cache.SnapshotCache, version, descriptors int) error {
	rules := make([]*config.RateLimitDescriptor, descriptors)
	for at := range rules {
		rules[at] = &config.RateLimitDescriptor{
			Key:   "key",
			Value: strconv.Itoa(at),
			RateLimit: &config.RateLimitPolicy{
				Unit:            config.RateLimitUnit_DAY,
				RequestsPerUnit: uint32(version),
			},
		}
	}
	policy := &config.RateLimitConfig{Name: domain, Domain: domain, Descriptors: rules}
	resources := map[resource.Type][]types.Resource{resource.RateLimitConfigType: {policy}}
	snapshot, err := cache.NewSnapshot(strconv.Itoa(version), resources)
	if err != nil {
		return err
	}
	return snapshots.SetSnapshot(context.Background(), node, snapshot)
}

// waitFor waits until the limit of key 0 is applied.
func waitFor(client rls.RateLimitServiceClient, limit uint32, patience time.Duration) error {
	for since := time.Now(); time.Since(since) < patience; time.Sleep(time.Millisecond) {
		answer, err := ask(client, "0", 0)
		if err == nil && answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == limit {
			return nil
		}
	}
	return fmt.Errorf("limit %d is not in force after %s", limit, patience)
}

func ask(client rls.RateLimitServiceClient, value string, hits uint64) (*rls.RateLimitResponse, error) {
	deadline, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.ShouldRateLimit(deadline, &rls.RateLimitRequest{
		Domain: domain,
		Descriptors: []*common.RateLimitDescriptor{{
			Entries:    []*common.RateLimitDescriptor_Entry{{Key: "key", Value: value}},
			HitsAddend: wrapperspb.UInt64(hits),
		}},
	})
}
