package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// A reading is what a service's checker says of a policy file.
type reading struct {
	accepted bool
	text     string
}

func (r reading) String() string {
	if r.accepted {
		return "reads"
	}
	return "rejects"
}

// read has both checkers read one policy file.
func (d *drill) read(text string) (peer, weir reading, err error) {
	dir := filepath.Join(d.dir, "files")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return peer, weir, err
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(text), 0o644); err != nil {
		return peer, weir, err
	}
	peer.accepted, peer.text = accepts(*checkBinary, "-config_dir", dir)
	weir.accepted, weir.text = accepts(*weirBinary, "limits", "lint", dir, "--max-period", "366d")
	return peer, weir, nil
}

// odd is what a line's value is replaced with.
var odd = []string{
	"", "~", "null", "Null", "true", "y", "1", "-1", "1.5", ".inf", "0x", "08", "017", "0b2", "1_0", "4294967296", "99999999999999999999",
	"2020-01-01", "[]", "{}", "[1]", "[{}]", "{a: 1}", "*l9", "&x", "'", `"\q"`, "@a", "a: b", "second", "SECOND", "fortnight", "-", "? a", "!!str 1", "|", ">-",
}

var lines = []string{
	"key: k", "unit: hour", "value: '*'", "requests_per_unit: 3", "unlimited: true", "name: one", "replaces: [{name: two}]", "replaces: [two]",
	"descriptors: []", "descriptors: ~", "descriptors: {}", "rate_limit: ~", "rate_limit: {}", "shadow_mode: maybe", "share_threshold: true", "other: 1", "1: 2",
	"- key: k", "- {}", "- k", "domain: d", "<<: {key: k}", "---", "...", "# only", "\tkey: k",
}

// change makes a policy file that may be wrong: a line more, less, elsewhere, or with another value.
func change(rng *rand.Rand, text string) string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for range 1 + rng.IntN(2) {
		i := rng.IntN(len(all))
		line := all[i]
		indent := line[:len(line)-len(strings.TrimLeft(line, " -"))]
		switch rng.IntN(6) {
		case 0:
			all = append(all[:i:i], all[i+1:]...)
			if len(all) == 0 {
				return ""
			}
		case 1:
			all = append(all[:i:i], append([]string{line}, all[i:]...)...)
		case 2:
			all[i] = strings.Replace(line, strings.TrimSpace(indent), "", 1)
		case 3:
			lead := strings.Map(func(rune) rune { return ' ' }, indent)
			all = append(all[:i+1:i+1], append([]string{lead + pick(rng, lines)}, all[i+1:]...)...)
		default:
			if at := strings.LastIndex(line, ": "); at >= 0 {
				all[i] = line[:at+2] + pick(rng, odd)
			}
		}
	}
	return strings.Join(all, "\n") + "\n"
}

// readOtherwise tells of a policy file that one of the two rejects whether a wanted difference is why.
var readOtherwise = map[string]func(peer, weir reading) bool{
	"second-document": func(peer, weir reading) bool {
		return peer.accepted && strings.Contains(weir.text, "a second document in one file")
	},
	"text-continued": func(peer, weir reading) bool {
		return peer.accepted && strings.Contains(weir.text, "invalid indentation in quoted scalar")
	},
	"list-of-limits": func(peer, _ reading) bool {
		return strings.Contains(peer.text, "cannot unmarshal !!seq into config.YamlRateLimit")
	},
	"number-as-text": func(peer, _ reading) bool { return strings.Contains(peer.text, ": error checking config\n") },
	"part-without-effect": func(peer, _ reading) bool {
		return strings.Contains(peer.text, "yaml: unmarshal errors:") && !strings.Contains(peer.text, "YamlRateLimit") ||
			strings.Contains(peer.text, "contains list of type other than map")
	},
}

// readFiles compares which policy files are accepted.
func (d *drill) readFiles() error {
	accepted := 0
	for i := range *files {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)+1<<32))
		text := drawPolicy(rng).text
		if chance(rng, 80) {
			text = change(rng, text)
		}
		peer, weir, err := d.read(text)
		if err != nil {
			return err
		}
		if peer.accepted == weir.accepted {
			if peer.accepted {
				accepted++
			}
			continue
		}
		if why := otherwise(peer, weir); why != "" {
			d.wanted.find(why).count++
			continue
		}
		d.unexpected++
		fmt.Printf("file %d: the peer %s, Weir %s\n%s\n  peer %s\n  weir %s\n", i, peer, weir, text, peer.text, weir.text)
	}
	fmt.Printf("%d policy files read: both accept %d, and both reject the rest but for wanted differences\n", *files, accepted)
	return nil
}

func otherwise(peer, weir reading) string {
	for name, is := range readOtherwise {
		if is(peer, weir) {
			return name
		}
	}
	return ""
}
