// Command check is the smallest call: may alex trade?
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	weir "github.com/OWNER/weir/clients/go"
)

func main() {
	client, err := weir.New(cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:8081"), weir.WithDeadline(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	decision, err := client.Check(context.Background(), weir.Key{"user", "alex", "trade"})
	switch {
	case err != nil:
		log.Fatal(err)
	case decision.Allowed:
		fmt.Printf("allowed, %d of %d left\n", decision.Remaining, decision.Limit)
	default:
		fmt.Printf("refused, retry after %.3f s\n", decision.RetryAfter.Seconds())
	}
}
