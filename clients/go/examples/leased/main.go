// Command leased checks a key as fast as it can, mostly by a lease, and prints for every allowed check the microseconds before and after
// it:
//
//	leased 127.0.0.1:8081,127.0.0.1:8082 "" api/alex 10
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	weir "github.com/OWNER/weir/clients/go"
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: leased TARGET DOMAIN KEY SECONDS")
	}
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	if err != nil {
		log.Fatal(err)
	}
	client, err := weir.New(os.Args[1], weir.WithLease(), weir.WithOnFailure(weir.Deny))
	if err != nil {
		log.Fatal(err)
	}
	// Close returns the unspent units.
	defer client.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer cancel()
	check(ctx, client, os.Args[2], strings.Split(os.Args[3], "/"))
}

func check(ctx context.Context, client *weir.Client, domain string, key weir.Key) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	flushed := time.Now()
	for ctx.Err() == nil {
		before := time.Now()
		// The end of this program ends no check.
		decision, err := client.Check(context.WithoutCancel(ctx), key, weir.Domain(domain))
		after := time.Now()
		pause := time.Millisecond
		switch {
		case err != nil:
			fmt.Fprintln(out, "error", err)
		case decision.Allowed:
			fmt.Fprintln(out, before.UnixMicro(), after.UnixMicro())
			pause /= 5
		}
		if after.Sub(flushed) > 50*time.Millisecond {
			out.Flush()
			flushed = after
		}
		time.Sleep(pause)
	}
}
