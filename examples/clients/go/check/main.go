// The smallest call: may alex trade?
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"weir.example/client/weirv1"
)

func main() {
	address := cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:8081")
	channel, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := weirv1.NewRateLimiterClient(channel).Check(ctx, &weirv1.CheckRequest{Key: []string{"user", "alex", "trade"}})
	switch {
	case err != nil:
		log.Fatal(err)
	case answer.Allowed:
		fmt.Printf("allowed, %d of %d left\n", answer.Remaining, answer.Limit)
	default:
		fmt.Printf("refused, retry after %.3f s\n", answer.RetryAfter.AsDuration().Seconds())
	}
}
