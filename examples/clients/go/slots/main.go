// A function of which only so many run at the same time: a slot is held around it, and extended while it runs.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"weir.example/client/weirv1"
)

var errAllTaken = errors.New("all slots are taken")

// slot runs work with a slot of a concurrency limit. Should this process die, the slot is free after the limit's ttl.
func slot(ctx context.Context, weir weirv1.RateLimiterClient, key []string, work func() error) error {
	taken, err := weir.Reserve(ctx, &weirv1.ReserveRequest{Check: &weirv1.CheckRequest{Key: key}})
	if err != nil {
		return err
	}
	if !taken.Decision.Allowed {
		return errAllTaken
	}
	done, extended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(extended)
		ticks := time.NewTicker(taken.ExpiresAfter.AsDuration() / 2)
		defer ticks.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticks.C:
				// Without an answer the next one may have it.
				_, _ = weir.Extend(ctx, &weirv1.ExtendRequest{Hold: taken.Hold})
			}
		}
	}()
	defer func() {
		close(done)
		<-extended
		// Also where the caller has given up.
		if _, err := weir.Commit(context.WithoutCancel(ctx), &weirv1.CommitRequest{Hold: taken.Hold}); err != nil {
			log.Print(err)
		}
	}()
	return work()
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
	exports := []string{"exports", "alex"}
	err = slot(ctx, weir, exports, func() error {
		fmt.Println("exporting")
		err := slot(ctx, weir, exports, func() error {
			fmt.Println("two at the same time")
			return nil
		})
		if errors.Is(err, errAllTaken) {
			fmt.Println("another one has to wait")
			return nil
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	err = slot(ctx, weir, exports, func() error {
		fmt.Println("exporting again")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
