package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// Labels that Prometheus adds, and the variables that Grafana replaces.
var (
	scraped   = []string{"job", "instance", "namespace", "pod", "service"}
	variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$__interval", "1m")
)

// What a service shows: the values of each label of each series.
type shown map[string]map[string][]string

// queries holds every query in dashboards (JSON) and rules (YAML) to metrics that exist: names, labels, and the values that
// a query asks for by `=`.
func queries(args []string) (string, error) {
	split := slices.Index(args, "--")
	if split < 1 || split == len(args)-1 {
		return "", errors.New(usage)
	}
	metrics := shown{}
	for _, path := range args[split+1:] {
		if err := metrics.read(path); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	var wrong []error
	count := 0
	for _, path := range args[:split] {
		found, err := readQueries(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if len(found) == 0 {
			wrong = append(wrong, fmt.Errorf("%s: no queries", path))
		}
		for _, query := range found {
			if err := metrics.judge(query); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w, in: %s", path, err, query))
			}
		}
		count += len(found)
	}
	return fmt.Sprintf("%d queries ask for what there is", count), errors.Join(wrong...)
}

func (metrics shown) read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text := expfmt.NewTextParser(model.UTF8Validation)
	families, err := text.TextToMetricFamilies(file)
	if err != nil {
		return err
	}
	for name, family := range families {
		names := []string{name}
		if family.GetType().String() == "HISTOGRAM" {
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
		}
		for _, name := range names {
			if metrics[name] == nil {
				metrics[name] = map[string][]string{}
			}
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					metrics[name][label.GetName()] = append(metrics[name][label.GetName()], label.GetValue())
				}
			}
			if strings.HasSuffix(name, "_bucket") {
				metrics[name]["le"] = nil
			}
		}
	}
	return nil
}

// Of a dashboard every `expr` and `query`; of rules every `expr`.
func readQueries(path string) ([]string, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var document any
	if filepath.Ext(path) == ".json" {
		err = json.Unmarshal(bytes, &document)
	} else {
		err = yaml.Unmarshal(bytes, &document)
	}
	var found []string
	collect(document, &found)
	return found, err
}

var labelValues = regexp.MustCompile(`^label_values\((.*), *(\w+)\)$`)

func collect(node any, found *[]string) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			text, isText := value.(string)
			switch {
			case isText && key == "expr":
				*found = append(*found, text)
			case isText && (key == "query" || key == "definition") && labelValues.MatchString(text):
				parts := labelValues.FindStringSubmatch(text)
				*found = append(*found, fmt.Sprintf("sum by (%s) (%s)", parts[2], parts[1]))
			default:
				collect(value, found)
			}
		}
	case []any:
		for _, value := range node {
			collect(value, found)
		}
	}
}

func (metrics shown) judge(query string) error {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(query))
	if err != nil {
		return err
	}
	var wrong []error
	parser.Inspect(expression, func(node parser.Node, path []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		wrong = append(wrong, metrics.judgeSelector(selector))
		for _, parent := range path {
			if sum, is := parent.(*parser.AggregateExpr); is && !sum.Without {
				for _, label := range sum.Grouping {
					wrong = append(wrong, metrics.hasLabel(selector.Name, label))
				}
			}
		}
		return nil
	})
	return errors.Join(wrong...)
}

func (metrics shown) judgeSelector(selector *parser.VectorSelector) error {
	if selector.Name == "up" || selector.Name == "ALERTS" {
		return nil
	}
	if metrics[selector.Name] == nil {
		return fmt.Errorf("%q is not a metric of this service", selector.Name)
	}
	for _, matcher := range selector.LabelMatchers {
		if matcher.Name == labels.MetricName {
			continue
		}
		if err := metrics.hasLabel(selector.Name, matcher.Name); err != nil {
			return err
		}
		values := metrics[selector.Name][matcher.Name]
		literal := matcher.Type == labels.MatchEqual && !slices.Contains(scraped, matcher.Name)
		if literal && !slices.Contains(values, matcher.Value) {
			return fmt.Errorf("%s is never %q in %s", matcher.Name, matcher.Value, selector.Name)
		}
	}
	return nil
}

func (metrics shown) hasLabel(name, label string) error {
	if _, has := metrics[name][label]; has || slices.Contains(scraped, label) {
		return nil
	}
	return fmt.Errorf("%s has no label %s", name, label)
}
