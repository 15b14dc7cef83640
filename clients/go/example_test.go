package weir_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/protobuf/types/known/durationpb"
)

func Example() {
	client, err := weir.New(os.Getenv("WEIR_ADDR"), weir.WithDeadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	decision, err := client.Check(context.Background(), weir.Key{"user", "alex", "trade"})
	if err != nil {
		log.Fatal(err)
	}
	if decision.Allowed {
		fmt.Printf("allowed, %d of %d left\n", decision.Remaining, decision.Limit)
	} else {
		fmt.Printf("refused, retry after %v\n", decision.RetryAfter)
	}
	// Output: allowed, 5 of 6 left
}

// The cost of a call of a language model is known only afterwards: reserve an estimate, and settle it by the real cost.
func ExampleClient_Reserve() {
	client := exampleClient()
	defer client.Close()
	complete := func(ctx context.Context, prompt string) (answer string, tokens int64, err error) {
		reservation, err := client.Reserve(ctx, weir.Key{"user", "berta"}, 10, weir.TTL(2*time.Minute))
		if err != nil {
			return "", 0, err
		}
		if !reservation.Decision.Allowed {
			return "", 0, fmt.Errorf("retry after %v", reservation.Decision.RetryAfter)
		}
		defer reservation.Cancel(ctx) // Nothing after a Commit.
		answer, tokens, err = model(ctx, prompt)
		if err != nil {
			return "", 0, err
		}
		settlement, err := reservation.Commit(ctx, tokens)
		return answer, settlement.Refunded, err
	}
	answer, refunded, err := complete(context.Background(), "hello")
	fmt.Println(answer, refunded, err)
	// Output: HELLO 6 <nil>
}

func model(_ context.Context, prompt string) (string, int64, error) {
	return strings.ToUpper(prompt), 4, nil
}

// A hot key, checked thousands of times a second: nearly all checks are decided in this process.
func ExampleWithLease() {
	client, err := weir.New(os.Getenv("WEIR_ADDR"), weir.WithLease(), weir.WithDeadline(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // Returns the unspent units.
	decided := map[weir.Source]int{}
	for range 1000 {
		decision, err := client.Check(context.Background(), weir.Key{"api", "alex"})
		if err != nil {
			log.Fatal(err)
		}
		decided[decision.Source]++
	}
	fmt.Println(decided[weir.Lease] > decided[weir.Service])
	// Output: true
}

// At most one export at the same time for each tenant.
func ExampleClient_Slot() {
	client := exampleClient()
	defer client.Close()
	export := func(ctx context.Context, tenant string, work func(context.Context)) error {
		slot, err := client.Slot(ctx, weir.Key{"exports", tenant})
		if err != nil {
			return err
		}
		if !slot.Decision.Allowed {
			return fmt.Errorf("%s exports already", tenant)
		}
		defer slot.Release(ctx)
		work(slot.Context()) // Ends when the slot is lost.
		return nil
	}
	err := export(context.Background(), "acme", func(ctx context.Context) {
		fmt.Println("exporting")
		fmt.Println(export(ctx, "acme", func(context.Context) {}))
	})
	fmt.Println(err)
	// Output:
	// exporting
	// acme exports already
	// <nil>
}

func ExampleClient_CheckBatch() {
	client := exampleClient()
	defer client.Close()
	results := client.CheckBatch(context.Background(),
		weir.NewRequest(weir.Key{"user", "carla", "trade"}, weir.Cost(2)),
		weir.NewRequest(weir.Key{"user", "carla", "trade"}, weir.Domain("unknown")))
	for _, result := range results {
		fmt.Println(result.Allowed, result.Remaining, result.Err)
	}
	// Output:
	// true 4 <nil>
	// false 0 weir: not found: domain: no policy defines the domain `unknown`
}

func ExampleClient_CheckAll() {
	client := exampleClient()
	defer client.Close()
	transfer, err := client.CheckAll(context.Background(),
		weir.NewRequest(weir.Key{"user", "dora", "trade"}),
		weir.NewRequest(weir.Key{"user", "emil", "trade"}, weir.Cost(7)))
	fmt.Println(transfer.Allowed, transfer.Decisions[0].Allowed, transfer.Decisions[1].Never, err)
	// Output: false true true <nil>
}

// The check brings its own limit, instead of the domain's policy.
func ExampleLimits() {
	client := exampleClient()
	defer client.Close()
	limit := weir.NewLimit(&weirv1.TokenBucket{Capacity: 10, Count: 10, Period: durationpb.New(time.Minute)})
	decision, err := client.Check(context.Background(), weir.Key{"ip", "192.0.2.1"}, weir.Limits(limit))
	fmt.Println(decision.Remaining, err)
	// Output: 9 <nil>
}

// Logins are refused during an outage (fail closed); all other requests pass (fail open).
func ExampleOnFailure() {
	client, err := weir.New("127.0.0.1:1", weir.WithOnFailure(weir.Allow))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, options := range [][]weir.CheckOption{nil, {weir.OnFailure(weir.Deny)}} {
		decision, err := client.Check(context.Background(), weir.Key{"user", "alex"}, options...)
		fmt.Println(decision.Allowed, decision.Source, err)
	}
	// Output:
	// true fallback <nil>
	// false fallback <nil>
}

func exampleClient() *weir.Client {
	client, err := weir.New(os.Getenv("WEIR_ADDR"), weir.WithDeadline(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	return client
}
