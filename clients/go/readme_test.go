package weir_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README shows only code that the tests run.
func TestTheReadmeShowsTheExamples(t *testing.T) {
	var examples strings.Builder
	for _, path := range []string{"example_test.go", "weirhttp/weirhttp_test.go", "weirgrpc/weirgrpc_test.go"} {
		source, err := os.ReadFile(path)
		succeeded(t, err)
		examples.WriteString(unindented(string(source)))
	}
	readme, err := os.ReadFile("README.md")
	succeeded(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	equal(t, "blocks", len(blocks), 6)
	for _, block := range blocks {
		if !strings.Contains(examples.String(), unindented(block[1])) {
			t.Errorf("no example has:\n%s", block[1])
		}
	}
}

// unindented removes the indentation, to compare code at any depth.
func unindented(source string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(source, "")
}
