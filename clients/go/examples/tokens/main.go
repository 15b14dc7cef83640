// Command tokens has a cost that is known afterwards: it reserves an estimate for a call of a language model, and settles the units used.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	weir "github.com/OWNER/weir/clients/go"
)

const estimate = 10

// complete stands for the model: its answer, and the tokens that it took.
func complete(prompt string) (string, int64, error) {
	return strings.ToUpper(prompt), 4, nil
}

func main() {
	client, err := weir.New(cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:8081"), weir.WithDeadline(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	settlement, err := limited(context.Background(), client, "hello")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("used %d of %d reserved, %d given back, %d over\n", settlement.Charged, estimate, settlement.Refunded, settlement.Overage)
}

func limited(ctx context.Context, client *weir.Client, prompt string) (weir.Settlement, error) {
	// The TTL is longer than any call takes. A reservation that is not settled by then counts as spent.
	reservation, err := client.Reserve(ctx, weir.Key{"user", "alex"}, estimate, weir.TTL(2*time.Minute))
	if err != nil {
		return weir.Settlement{}, err
	}
	if !reservation.Decision.Allowed {
		return weir.Settlement{}, fmt.Errorf("refused, retry after %v", reservation.Decision.RetryAfter)
	}
	defer reservation.Cancel(ctx)
	_, used, err := complete(prompt)
	if err != nil {
		return weir.Settlement{}, err
	}
	return reservation.Commit(ctx, used)
}
