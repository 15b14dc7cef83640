package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A rule is one descriptor of a policy file.
type rule struct {
	key, value string
	limit      *limit
	flags      []string
	children   []*rule
}

type limit struct {
	unit      string
	count     uint32
	unlimited bool
	name      string
	replaces  []string
}

// A policy is a file's domain and rules, and the text that says it in one of the ways that YAML 1.1 has.
type policy struct {
	domain string
	rules  []*rule
	text   string
}

// Keys and values are few, so that requests often meet rules and each other. Neither holds `_`: see `joined`.
var (
	keys   = []string{"user", "path", "ip", "k"}
	values = []string{"alex", "sam", "/search", "/", "10.0.0.1", "1", "true", "é", "a b", "a:b|c"}
	units  = []string{"minute", "hour", "day", "week", "month", "year", "MINUTE", "Hour"}
	names  = []string{"one", "two", "three"}
)

func pick[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

func chance(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }

func drawPolicy(rng *rand.Rand) *policy {
	p := &policy{domain: pick(rng, []string{"shop", "a.b", "default/eg/http"})}
	p.rules = drawRules(rng, 0)
	w := &writer{rng: rng}
	w.file(p)
	p.text = w.text.String()
	return p
}

func drawRules(rng *rand.Rand, depth int) []*rule {
	var rules []*rule
	taken := map[string]bool{}
	for range 1 + rng.IntN(5-depth) {
		r := &rule{key: pick(rng, keys)}
		switch {
		case chance(rng, 45):
		case chance(rng, 50):
			r.value = pick(rng, values)
		default:
			r.value = pick(rng, []string{"*", "a*", "/*", "10.*", "s*"})
		}
		if taken[r.key+"="+r.value] {
			continue
		}
		taken[r.key+"="+r.value] = true
		if depth < 3 && chance(rng, 40) {
			r.children = drawRules(rng, depth+1)
		}
		if len(r.children) == 0 || chance(rng, 50) {
			r.limit = drawLimit(rng)
		}
		for _, flag := range []string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"} {
			if chance(rng, 12) {
				r.flags = append(r.flags, flag)
			}
		}
		if strings.HasSuffix(r.value, "*") && chance(rng, 40) {
			r.flags = append(r.flags, "share_threshold")
		}
		rules = append(rules, r)
	}
	return rules
}

func drawLimit(rng *rand.Rand) *limit {
	l := &limit{}
	switch {
	case chance(rng, 10):
		l.unlimited = true
	default:
		l.unit = pick(rng, units)
		l.count = pick(rng, []uint32{0, 1, 2, 3, 5, 8, 15, 20, 1000, 4294967295})
	}
	if chance(rng, 40) {
		l.name = pick(rng, names)
	}
	if chance(rng, 20) {
		if other := pick(rng, names); other != l.name {
			l.replaces = append(l.replaces, other)
		}
	}
	return l
}

// A writer says a policy in YAML: at random in block or flow style, with numbers, truth values and texts in any notation.
type writer struct {
	rng     *rand.Rand
	text    strings.Builder
	anchors int
}

func (w *writer) file(p *policy) {
	if chance(w.rng, 20) {
		w.text.WriteString("---\n")
	}
	fmt.Fprintf(&w.text, "domain: %s\ndescriptors:\n", w.scalar(p.domain))
	w.rules(p.rules, "  ")
	if chance(w.rng, 20) {
		w.text.WriteString("...\n")
	}
}

func (w *writer) rules(rules []*rule, indent string) {
	for _, r := range rules {
		var lines []string
		add := func(format string, arguments ...any) { lines = append(lines, fmt.Sprintf(format, arguments...)) }
		if chance(w.rng, 8) {
			// Of a key that stands twice the later value counts.
			add("key: other")
		}
		add("key: %s", w.scalar(r.key))
		if r.value != "" {
			add("value: %s", w.scalar(r.value))
		} else if chance(w.rng, 5) {
			add("value: %s", pick(w.rng, []string{"", "~", "null", `""`}))
		}
		for _, flag := range []string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold"} {
			has := false
			for _, set := range r.flags {
				has = has || set == flag
			}
			if has || chance(w.rng, 4) {
				add("%s: %s", flag, w.truth(has))
			}
		}
		if r.limit != nil {
			lines = append(lines, w.limit(r.limit)...)
		}
		for i, line := range lines {
			lead := indent + "  "
			if i == 0 {
				lead = indent + "- "
			}
			w.text.WriteString(lead + line)
			if chance(w.rng, 4) {
				w.text.WriteString(" # a comment: { }")
			}
			w.text.WriteString("\n")
		}
		if len(r.children) > 0 {
			w.text.WriteString(indent + "  descriptors:\n")
			w.rules(r.children, indent+"    ")
		}
	}
}

func (w *writer) limit(l *limit) []string {
	var parts []string
	add := func(format string, arguments ...any) { parts = append(parts, fmt.Sprintf(format, arguments...)) }
	if l.unlimited {
		add("unlimited: %s", w.truth(true))
	} else {
		add("unit: %s", w.scalar(l.unit))
		add("requests_per_unit: %s", w.number(l.count))
	}
	if l.name != "" {
		add("name: %s", w.scalar(l.name))
	}
	if len(l.replaces) > 0 {
		add("replaces: [{name: %s}]", strings.Join(l.replaces, "}, {name: "))
	}
	w.anchors++
	anchor := fmt.Sprintf("l%d", w.anchors)
	switch w.rng.IntN(6) {
	case 0:
		// The merged map is one of a rule that has it, so the limit is said by `<<` alone.
		return []string{"rate_limit: &" + anchor + " {" + strings.Join(parts, ", ") + "}", "rate_limit: {<<: *" + anchor + "}"}
	case 1:
		return []string{"rate_limit: &" + anchor + " {unit: second, requests_per_unit: 7}", "rate_limit: {<<: *" + anchor + ", " + strings.Join(overriding(l, parts), ", ") + "}"}
	case 2, 3:
		return []string{"rate_limit: {" + strings.Join(parts, ", ") + "}"}
	default:
		lines := []string{"rate_limit:"}
		for _, part := range parts {
			lines = append(lines, "  "+part)
		}
		return lines
	}
}

// overriding also takes back the unit of a map that is merged into one without.
func overriding(l *limit, parts []string) []string {
	if l.unlimited {
		return append(parts, "unit: ''")
	}
	return parts
}

func (w *writer) truth(value bool) string {
	if value {
		return pick(w.rng, []string{"true", "yes", "on", "y", "Y", "True", "TRUE", "Yes", "ON"})
	}
	return pick(w.rng, []string{"false", "no", "off", "n", "N", "False", "~", ""})
}

func (w *writer) number(value uint32) string {
	formats := []string{"%d", "%d", "%d", "%#x", "%#o", "0b%b", "+%d"}
	text := fmt.Sprintf(pick(w.rng, formats), value)
	if value >= 1000 && chance(w.rng, 30) {
		text = fmt.Sprintf("%d_%03d", value/1000, value%1000)
	}
	return text
}

// scalar writes a text plain where YAML reads it back as the text, or quoted.
func (w *writer) scalar(text string) string {
	plain := !strings.ContainsAny(text, "*:|#&") && text != "" && !strings.HasPrefix(text, " ")
	if plain && chance(w.rng, 60) {
		return text
	}
	if chance(w.rng, 50) {
		return "'" + text + "'"
	}
	return fmt.Sprintf("%q", text)
}
