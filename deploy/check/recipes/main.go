// Recipes reads the documents of pages such as docs/envoy-recipes.md strictly into the types of those who will read them: Envoy Gateway, Istio
// and Contour. Typed configurations of Envoy within them are read into Envoy's messages.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	eg "github.com/envoyproxy/gateway/api/v1alpha1"
	matcher "github.com/cncf/xds/go/xds/type/matcher/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rate_limit_quota/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	contour "github.com/projectcontour/contour/apis/projectcontour/v1"
	contouralpha "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	istio "istio.io/api/networking/v1alpha3"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// envoyFilter is Istio's resource, whose specification is a protobuf message.
type envoyFilter struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            json.RawMessage `json:"spec"`
}

// contourFile is the part of Contour's configuration file that a recipe has. Contour's own type is in a package of its program.
type contourFile struct {
	RateLimitService struct {
		ExtensionService            string `json:"extensionService"`
		Domain                      string `json:"domain"`
		FailOpen                    bool   `json:"failOpen"`
		EnableXRateLimitHeaders     bool   `json:"enableXRateLimitHeaders"`
		EnableResourceExhaustedCode bool   `json:"enableResourceExhaustedCode"`
	} `json:"rateLimitService"`
}

var block = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func main() {
	read := map[string]int{}
	for _, path := range os.Args[1:] {
		page, err := os.ReadFile(path)
		if err != nil {
			fail(path, err)
		}
		for _, found := range block.FindAllSubmatch(page, -1) {
			kind, err := judge(found[1])
			if err != nil {
				fail(path, fmt.Errorf("%w, in\n%s", err, found[1]))
			}
			read[kind]++
		}
	}
	told := []string{}
	for _, kind := range []string{"EnvoyGateway", "BackendTrafficPolicy", "rules", "EnvoyFilter", "ExtensionService", "contour.yaml", "HTTPProxy", "rate_limits", "bucket_matchers"} {
		if read[kind] == 0 {
			fail(strings.Join(os.Args[1:], ", "), fmt.Errorf("there is no %s", kind))
		}
		told = append(told, fmt.Sprintf("%d %s", read[kind], kind))
	}
	fmt.Println(strings.Join(told, ", "))
}

func fail(path string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
	os.Exit(1)
}

// judge reads a document, and says of what kind it is; other documents, such as Weir's own, have none.
func judge(text []byte) (string, error) {
	var head struct {
		Kind             string          `json:"kind"`
		Rules            json.RawMessage `json:"rules"`
		RateLimitService json.RawMessage `json:"rateLimitService"`
		RateLimits       []json.RawMessage `json:"rate_limits"`
		BucketMatchers   json.RawMessage   `json:"bucket_matchers"`
	}
	if err := yaml.Unmarshal(text, &head); err != nil {
		return "", err
	}
	switch {
	case head.Kind == "EnvoyGateway":
		return head.Kind, yaml.UnmarshalStrict(text, &eg.EnvoyGateway{})
	case head.Kind == "BackendTrafficPolicy":
		return head.Kind, yaml.UnmarshalStrict(text, &eg.BackendTrafficPolicy{})
	case head.Kind == "ExtensionService":
		return head.Kind, yaml.UnmarshalStrict(text, &contouralpha.ExtensionService{})
	case head.Kind == "HTTPProxy":
		return head.Kind, yaml.UnmarshalStrict(text, &contour.HTTPProxy{})
	case head.Kind == "EnvoyFilter":
		return head.Kind, ofIstio(text)
	case head.Kind != "":
		return "", fmt.Errorf("unknown kind %s", head.Kind)
	case head.Rules != nil:
		return "rules", yaml.UnmarshalStrict(text, &eg.GlobalRateLimit{})
	case head.RateLimitService != nil:
		return "contour.yaml", yaml.UnmarshalStrict(text, &contourFile{})
	case head.RateLimits != nil:
		return "rate_limits", rateLimits(head.RateLimits)
	case head.BucketMatchers != nil:
		return "bucket_matchers", message(head.BucketMatchers, &matcher.Matcher{})
	}
	return "", nil
}

func rateLimits(limits []json.RawMessage) error {
	for _, limit := range limits {
		if err := message(limit, &route.RateLimit{}); err != nil {
			return err
		}
	}
	return nil
}

// ofIstio reads an EnvoyFilter, and what its patches put into Envoy's configuration.
func ofIstio(text []byte) error {
	var filter envoyFilter
	if err := yaml.UnmarshalStrict(text, &filter); err != nil {
		return err
	}
	var spec istio.EnvoyFilter
	if err := protojson.Unmarshal(filter.Spec, &spec); err != nil {
		return err
	}
	for _, patch := range spec.ConfigPatches {
		value, err := protojson.Marshal(patch.Patch.Value)
		if err != nil {
			return err
		}
		var parts struct {
			TypedConfig json.RawMessage   `json:"typed_config"`
			RateLimits  []json.RawMessage `json:"rate_limits"`
		}
		if err := json.Unmarshal(value, &parts); err != nil {
			return err
		}
		if parts.TypedConfig == nil && parts.RateLimits == nil {
			return fmt.Errorf("a patch has neither a filter nor rate_limits: %s", value)
		}
		if parts.TypedConfig != nil {
			if err := typed(parts.TypedConfig); err != nil {
				return err
			}
		}
		if err := rateLimits(parts.RateLimits); err != nil {
			return err
		}
	}
	return nil
}

func typed(config json.RawMessage) error {
	const url = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return err
	}
	if named := string(bytes.Trim(fields["@type"], `"`)); named != url {
		return fmt.Errorf("the filter's type is %s", named)
	}
	delete(fields, "@type")
	rest, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return message(rest, &ratelimit.RateLimit{})
}

// message reads JSON into a message of Envoy's, and applies the message's own rules.
func message(text []byte, into interface {
	proto.Message
	ValidateAll() error
}) error {
	if err := protojson.Unmarshal(text, into); err != nil {
		return err
	}
	return into.ValidateAll()
}
