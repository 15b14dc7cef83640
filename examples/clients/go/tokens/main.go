// A cost that is known afterwards: reserves an estimate for a call of a language model, and settles by what it used.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"weir.example/client/weirv1"
)

const estimate = 10

// complete stands for the model: its answer, and the tokens that it took.
func complete(prompt string) (string, int64, error) {
	return strings.ToUpper(prompt), 4, nil
}

func main() {
	address := cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:8081")
	channel, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	weir := weirv1.NewRateLimiterClient(channel)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	reserved, err := weir.Reserve(ctx, &weirv1.ReserveRequest{
		Check: &weirv1.CheckRequest{Key: []string{"user", "alex"}, Cost: proto.Int64(estimate)},
		// Longer than any call takes. A reservation that nobody settles counts as spent then.
		Ttl: durationpb.New(2 * time.Minute),
	})
	if err != nil {
		log.Fatal(err)
	}
	if !reserved.Decision.Allowed {
		log.Fatalf("refused, retry after %.3f s", reserved.Decision.RetryAfter.AsDuration().Seconds())
	}
	_, used, err := complete("hello")
	if err != nil {
		_, _ = weir.Cancel(ctx, &weirv1.CancelRequest{Hold: reserved.Hold})
		log.Fatal(err)
	}
	// Idempotent: repeat it where the answer is lost.
	settled, err := weir.Commit(ctx, &weirv1.CommitRequest{Hold: reserved.Hold, Actual: proto.Int64(used)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("used %d of %d reserved, %d given back, %d over\n", settled.Charged, estimate, settled.Refunded, settled.Overage)
}
