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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"weir.example/client/weirv1"
)

var errAllTaken = errors.New("all slots are taken")

// slot runs work with a slot of a concurrency limit. Should this process die, the slot is free after the limit's ttl. The work's
// context ends when the slot is lost.
func slot(ctx context.Context, weir weirv1.RateLimiterClient, key []string, work func(context.Context) error) error {
	taken, err := weir.Reserve(ctx, &weirv1.ReserveRequest{Check: &weirv1.CheckRequest{Key: key}})
	if err != nil {
		return err
	}
	if !taken.Decision.Allowed {
		return errAllTaken
	}
	working, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		// A third: an answer may be lost, and the next one is in time.
		third := taken.ExpiresAfter.AsDuration() / 3
		for {
			select {
			case <-working.Done():
				return
			case <-time.After(third):
			}
			call, done := context.WithTimeout(working, third)
			held, err := weir.Extend(call, &weirv1.ExtendRequest{Hold: taken.Hold})
			done()
			if err == nil {
				third = held.ExpiresAfter.AsDuration() / 3
			} else if status.Code(err) == codes.NotFound {
				return
			}
		}
	}()
	defer func() {
		stop()
		// Also where the caller has given up.
		if _, err := weir.Commit(context.WithoutCancel(ctx), &weirv1.CommitRequest{Hold: taken.Hold}); err != nil {
			log.Printf("the slot is free after its ttl: %v", err)
		}
	}()
	return work(working)
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
	err = slot(ctx, weir, exports, func(ctx context.Context) error {
		fmt.Println("exporting")
		err := slot(ctx, weir, exports, func(context.Context) error {
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
	err = slot(ctx, weir, exports, func(context.Context) error {
		fmt.Println("exporting again")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
