package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"gopkg.in/yaml.v2"
)

//go:embed wanted.yaml
var wantedText []byte

// A difference is one that is meant to be. Its example is tried, so that the list stays true.
type difference struct {
	Name      string
	Reason    string
	Variables []string
	Policy    string
	// Requests are sent in turn; the answers to the last one are compared with Peer and Weir. Without any the policy is only read.
	Requests   []string
	Peer, Weir string
	// Met says that policies and requests that are drawn may meet it, so that excuses has it.
	Met bool

	count int
}

type wanted []*difference

func readWanted() (wanted, error) {
	var list wanted
	if err := yaml.UnmarshalStrict(wantedText, &list); err != nil {
		return nil, fmt.Errorf("wanted.yaml: %w", err)
	}
	for _, d := range list {
		if (excuses[d.Name] != nil || readOtherwise[d.Name] != nil) != d.Met {
			return nil, fmt.Errorf("wanted.yaml: `met` of %s is not what the code has", d.Name)
		}
	}
	for name := range excuses {
		if list.find(name) == nil {
			return nil, fmt.Errorf("wanted.yaml does not have %s", name)
		}
	}
	for name := range readOtherwise {
		if list.find(name) == nil {
			return nil, fmt.Errorf("wanted.yaml does not have %s", name)
		}
	}
	return list, nil
}

func (w wanted) find(name string) *difference {
	for _, d := range w {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// excuses make two answers alike where a wanted difference says why they are not, and tell whether they changed anything.
var excuses = map[string]func(peer, weir *rls.RateLimitResponse) bool{
	"quota-mode":                   quotaMode,
	"quota-mode-metadata":          quotaModeMetadata,
	"override-text":                overrideText,
	"headers-of-the-largest-limit": headersOfTheLargest,
}

// explains tells whether wanted differences account for all that differs, and counts them.
func (w wanted) explains(peer, weir answer) bool {
	if peer.response == nil || weir.response == nil {
		return false
	}
	a, b := proto.Clone(peer.response).(*rls.RateLimitResponse), proto.Clone(weir.response).(*rls.RateLimitResponse)
	if len(a.Statuses) != len(b.Statuses) {
		return false
	}
	var met []string
	for name, excuse := range excuses {
		if excuse(a, b) {
			met = append(met, name)
		}
	}
	if !agree(answer{response: a}, answer{response: b}) {
		return false
	}
	for _, name := range met {
		w.find(name).count++
	}
	return true
}

// quotaMode: the pinned version answers OK for a descriptor in quota mode that is over its limit.
func quotaMode(peer, weir *rls.RateLimitResponse) (applies bool) {
	over := false
	for i, p := range peer.Statuses {
		w := weir.Statuses[i]
		if p.Code == rls.RateLimitResponse_OK && w.Code == rls.RateLimitResponse_OVER_LIMIT && p.DurationUntilReset == nil && p.CurrentLimit != nil {
			w.Code, w.DurationUntilReset, applies = p.Code, nil, true
		}
		over = over || w.Code == rls.RateLimitResponse_OVER_LIMIT
	}
	if applies && !over {
		weir.OverallCode = peer.OverallCode
	}
	return applies
}

func quotaModeMetadata(peer, weir *rls.RateLimitResponse) (applies bool) {
	for _, r := range []*rls.RateLimitResponse{peer, weir} {
		for _, name := range []string{"quotaModeEnabled", "quotaModeViolations"} {
			if _, has := r.DynamicMetadata.GetFields()[name]; has {
				delete(r.DynamicMetadata.Fields, name)
				applies = true
			}
		}
	}
	return applies
}

// overrideText: Go prints a message with one or two spaces between its fields.
func overrideText(peer, _ *rls.RateLimitResponse) (applies bool) {
	for _, d := range peer.DynamicMetadata.GetFields()["descriptors"].GetListValue().GetValues() {
		fields := d.GetStructValue().GetFields()
		if text := fields["limit"].GetStringValue(); strings.Contains(text, "  ") {
			fields["limit"] = structpb.NewStringValue(strings.ReplaceAll(text, "  ", " "))
			applies = true
		}
	}
	return applies
}

// headersOfTheLargest: the peer looks for a remaining count below the largest number, so a limit that has it left gives no headers.
func headersOfTheLargest(peer, weir *rls.RateLimitResponse) bool {
	largest := !slices.ContainsFunc(peer.Statuses, func(s *rls.RateLimitResponse_DescriptorStatus) bool {
		return s.CurrentLimit != nil && s.LimitRemaining != math.MaxUint32
	})
	if !largest || len(peer.ResponseHeadersToAdd) > 0 || len(weir.ResponseHeadersToAdd) == 0 {
		return false
	}
	weir.ResponseHeadersToAdd = nil
	return true
}

// examples tries every wanted difference: it must still be one.
func (d *drill) examples() error {
	for _, example := range d.wanted {
		peer, weir, err := d.example(example)
		if err != nil {
			return fmt.Errorf("wanted.yaml, %s: %w", example.Name, err)
		}
		if peer != strings.TrimSpace(example.Peer) || weir != strings.TrimSpace(example.Weir) {
			d.unexpected++
			fmt.Printf("wanted.yaml, %s: is not so\n  peer %s\n  weir %s\n", example.Name, peer, weir)
		}
	}
	return nil
}

func (d *drill) example(e *difference) (atPeer, atWeir string, err error) {
	if len(e.Requests) == 0 {
		peer, weir, err := d.read(e.Policy)
		return peer.String(), weir.String(), err
	}
	peer, weir, err := d.pair(e.Policy, e.Variables)
	if err != nil {
		return "", "", err
	}
	defer peer.close()
	defer weir.close()
	sameMinute()
	for _, text := range e.Requests {
		request := &rls.RateLimitRequest{}
		if err := protojson.Unmarshal([]byte(text), request); err != nil {
			return "", "", err
		}
		atPeer, atWeir = peer.call(request).String(), weir.call(request).String()
		if strings.HasPrefix(atPeer, "error: ") && peer.hasEnded() {
			atPeer = "ends"
		}
	}
	return atPeer, atWeir, nil
}

func (w wanted) print() {
	fmt.Printf("wanted differences, with an example each: %d\n", len(w))
	met := slices.DeleteFunc(slices.Clone(w), func(d *difference) bool { return !d.Met })
	for _, d := range met {
		fmt.Printf("  met %5d times at random: %s\n", d.count, d.Name)
	}
}
