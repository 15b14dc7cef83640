package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// overrideUnits leaves out UNKNOWN, which ends the peer's process, and SECOND, whose windows are too short to compare.
var overrideUnits = []kind.RateLimitUnit{kind.RateLimitUnit_MINUTE, kind.RateLimitUnit_HOUR, kind.RateLimitUnit_DAY, kind.RateLimitUnit_MONTH, kind.RateLimitUnit_YEAR}

func drawRequest(rng *rand.Rand, p *policy) *rls.RateLimitRequest {
	request := &rls.RateLimitRequest{Domain: p.domain}
	if chance(rng, 2) {
		request.Domain = pick(rng, []string{"", "unknown"})
	}
	switch {
	case chance(rng, 70):
	case chance(rng, 90):
		request.HitsAddend = uint32(rng.IntN(6))
	default:
		request.HitsAddend = pick(rng, []uint32{1000, 4294967295})
	}
	for range rng.IntN(5) + rng.IntN(2) {
		request.Descriptors = append(request.Descriptors, drawDescriptor(rng, p))
	}
	if n := len(request.Descriptors); n > 1 && chance(rng, 10) {
		request.Descriptors[n-1] = request.Descriptors[0]
	}
	return request
}

func drawDescriptor(rng *rand.Rand, p *policy) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	add := func(key, value string) {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	// Down along the rules, mostly to the end.
	for rules := p.rules; len(rules) > 0 && !chance(rng, 8); {
		r := pick(rng, rules)
		value := r.value
		switch {
		case value == "" || chance(rng, 5):
			value = pick(rng, append(values, ""))
		case value[len(value)-1] == '*':
			value = value[:len(value)-1] + pick(rng, []string{"", "a", "lex", "am"})
		}
		key := r.key
		if chance(rng, 2) {
			key = pick(rng, keys)
		}
		add(key, value)
		rules = r.children
		if r.limit != nil && chance(rng, 40) {
			break
		}
	}
	if chance(rng, 3) {
		add(pick(rng, keys), pick(rng, values))
	}
	if chance(rng, 10) {
		d.HitsAddend = wrapperspb.UInt64(pick(rng, []uint64{0, 0, 1, 2, 7, 100, 1 << 32}))
	}
	if len(d.Entries) > 0 {
		d.Limit = override(d)
	}
	return d
}

// override is the limit that some descriptors always carry, so that no count is shared by an override and a rule.
func override(d *common.RateLimitDescriptor) *common.RateLimitDescriptor_RateLimitOverride {
	hash := fnv.New32a()
	for _, e := range d.Entries {
		fmt.Fprintf(hash, "%q=%q,", e.Key, e.Value)
	}
	rng := rand.New(rand.NewPCG(uint64(hash.Sum32()), 0))
	if !chance(rng, 7) {
		return nil
	}
	return &common.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: pick(rng, []uint32{0, 1, 3, 10, 4294967295}), Unit: pick(rng, overrideUnits),
	}
}
