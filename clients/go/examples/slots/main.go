// Command slots bounds the concurrent runs of a function: a slot is held around it, and extended while it runs.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	weir "github.com/OWNER/weir/clients/go"
)

var errAllTaken = errors.New("all slots are taken")

func export(ctx context.Context, client *weir.Client, work func(context.Context) error) error {
	slot, err := client.Slot(ctx, weir.Key{"exports", "alex"})
	if err != nil {
		return err
	}
	if !slot.Decision.Allowed {
		return errAllTaken
	}
	defer func() {
		if err := slot.Release(ctx); err != nil {
			log.Printf("the slot is free after its ttl: %v", err)
		}
	}()
	return work(slot.Context())
}

func main() {
	client, err := weir.New(cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:8081"), weir.WithDeadline(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = export(context.Background(), client, func(ctx context.Context) error {
		fmt.Println("exporting")
		if err := export(ctx, client, func(context.Context) error { return nil }); !errors.Is(err, errAllTaken) {
			return fmt.Errorf("two at the same time: %v", err)
		}
		fmt.Println("another one has to wait")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	err = export(context.Background(), client, func(context.Context) error {
		fmt.Println("exporting again")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
