// The drill `peer`: envoyproxy/ratelimit and Weir, called `ratelimit`, with the same variables, policy files and requests.
// Differences are printed; those that wanted.yaml does not explain fail the drill.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

var (
	weirBinary  = flag.String("weir", "", "binary of weir")
	peerBinary  = flag.String("peer", "", "binary of envoyproxy/ratelimit's service_cmd")
	checkBinary = flag.String("check", "", "binary of envoyproxy/ratelimit's config_check_cmd")
	seed        = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of all that is drawn")
	files       = flag.Int("files", 2000, "policy files to read with both")
	rounds      = flag.Int("rounds", 60, "policies to send requests to")
	requests    = flag.Int("requests", 300, "requests to a policy")
)

// A drill has a directory, a Redis for each service, and what it found.
type drill struct {
	dir        string
	weir       string
	redis      [2]*redis
	wanted     wanted
	unexpected int
}

func main() {
	flag.Parse()
	if err := drillAll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func drillAll() error {
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &drill{dir: dir, weir: filepath.Join(dir, "ratelimit")}
	if d.wanted, err = readWanted(); err != nil {
		return err
	}
	binary, err := filepath.Abs(*weirBinary)
	if err != nil {
		return err
	}
	if err := os.Symlink(binary, d.weir); err != nil {
		return err
	}
	for i, name := range []string{"redis-peer", "redis-weir"} {
		if d.redis[i], err = startRedis(dir, name); err != nil {
			return err
		}
		defer d.redis[i].stop()
	}
	fmt.Printf("seed %d\n", *seed)
	if err := d.examples(); err != nil {
		return err
	}
	if err := d.readFiles(); err != nil {
		return err
	}
	for round := range *rounds {
		if err := d.round(round); err != nil {
			return err
		}
	}
	d.wanted.print()
	if d.unexpected > 0 {
		return fmt.Errorf("%d differences that wanted.yaml does not explain; -seed %d shows them again", d.unexpected, *seed)
	}
	return nil
}

// pair starts both services over empty stores, with one policy.
func (d *drill) pair(text string, variables []string) (peer, weir *service, err error) {
	config := filepath.Join(d.dir, "config")
	if err := os.RemoveAll(config); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(config, 0o755); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(config, "policy.yaml"), []byte(text), 0o644); err != nil {
		return nil, nil, err
	}
	for _, redis := range d.redis {
		if err := redis.command("FLUSHALL"); err != nil {
			return nil, nil, err
		}
	}
	if peer, err = startService(*peerBinary, "peer", d.dir, d.redis[0], variables); err != nil {
		return nil, nil, fmt.Errorf("the peer: %w", err)
	}
	if weir, err = startService(d.weir, "weir", d.dir, d.redis[1], variables); err != nil {
		peer.close()
		return nil, nil, fmt.Errorf("weir: %w", err)
	}
	return peer, weir, nil
}

// drawVariables says how a service is run.
func drawVariables(rng *rand.Rand) []string {
	var variables []string
	// Not both: wanted.yaml, stop-with-local-cache.
	switch rng.IntN(3) {
	case 0:
		variables = append(variables, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true")
	case 1:
		variables = append(variables, "LOCAL_CACHE_SIZE_IN_BYTES=1000000")
	}
	for _, one := range []string{
		"LIMIT_RESPONSE_HEADERS_ENABLED=true",
		"RESPONSE_DYNAMIC_METADATA=true", "SHADOW_MODE=true", "QUOTA_MODE=true", "EXPIRATION_JITTER_MAX_SECONDS=0", "CACHE_KEY_PREFIX=x:",
	} {
		percent := 30
		if one == "SHADOW_MODE=true" || one == "QUOTA_MODE=true" {
			percent = 10
		}
		if chance(rng, percent) {
			variables = append(variables, one)
		}
	}
	return variables
}

// sameMinute waits until enough of the minute, the shortest window that is compared, is left.
func sameMinute() int64 {
	if left := time.Minute - time.Duration(time.Now().UnixNano())%time.Minute; left < 2*time.Second {
		time.Sleep(left)
	}
	return time.Now().Unix() / 60
}

// round sends requests to one policy. It ends at a difference, after which the counts are no longer the same.
func (d *drill) round(number int) error {
	rng := rand.New(rand.NewPCG(*seed, uint64(number)+1))
	p, variables := drawPolicy(rng), drawVariables(rng)
	if changed := change(rng, p.text); chance(rng, 50) {
		if a, b, err := d.read(changed); err != nil {
			return err
		} else if a.accepted && b.accepted {
			p.text = changed
		}
	}
	peer, weir, err := d.pair(p.text, variables)
	if err != nil {
		return fmt.Errorf("round %d, %v: %w\n%s", number, variables, err, p.text)
	}
	defer peer.close()
	defer weir.close()
	over := 0
	for sent := range *requests {
		request := drawRequest(rng, p)
		by := (*service).call
		if chance(rng, 10) {
			by = (*service).post
		}
		minute := sameMinute()
		a, b := by(peer, request), by(weir, request)
		if minute != time.Now().Unix()/60 {
			fmt.Printf("round %d ends after %d requests: a window ended\n", number, sent)
			return nil
		}
		if agree(a, b) || d.wanted.explains(a, b) {
			if b.response.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
				over++
			}
			continue
		}
		d.unexpected++
		text, _ := protojson.Marshal(request)
		fmt.Printf("round %d, request %d differs, %v\n%s\n  request %s\n  peer    %s %v\n  weir    %s %v\n", number, sent, variables, p.text, text, a, a.response.GetStatuses(), b, b.response.GetStatuses())
		return nil
	}
	fmt.Printf("round %d: %d requests alike, %d over a limit, %v\n", number, *requests, over, variables)
	return nil
}
