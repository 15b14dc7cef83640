package weir_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/OWNER/weir/clients/go/internal/weirtest"
)

const (
	recipes = 14
	// Printed before each recipe.
	recipeMark = "==="
)

// Each Go block of docs/cookbook-code.md runs with the cookbook's policies, and prints the text below it.
func TestEachRecipePrintsWhatThePageSays(t *testing.T) {
	docs := filepath.Join(weirtest.Repository(t), "docs")
	server := weirtest.Serve(t, cookbookLimits(t, docs))

	sections := pageSections(t, filepath.Join(docs, "cookbook-code.md"))
	equal(t, "recipes", len(sections)-1, recipes)
	var recipe, printed []string
	for _, section := range sections[1:] {
		recipe = append(recipe, fenced(t, section, "go")...)
		printed = append(printed, fenced(t, section, "text")...)
	}
	output := runProgram(t, program(fenced(t, sections[0], "go")[0], recipe, server.Grpc))
	got := strings.Split(output, recipeMark+"\n")[1:]
	equal(t, "outputs", len(got), recipes)
	for i := range printed {
		equal(t, "recipe "+sections[i+1][:strings.Index(sections[i+1], "\n")], got[i], printed[i])
	}
}

func pageSections(t *testing.T, path string) []string {
	t.Helper()
	page, err := os.ReadFile(path)
	succeeded(t, err)
	return strings.Split(string(page), "\n## ")
}

// fenced returns a section's code blocks in a language.
func fenced(t *testing.T, section, language string) (blocks []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("no %s in %s", language, section)
	}
	return blocks
}

// cookbookLimits returns a directory with the cookbook's policies.
func cookbookLimits(t *testing.T, docs string) string {
	t.Helper()
	limits := t.TempDir()
	recipes := strings.Join(pageSections(t, filepath.Join(docs, "cookbook.md"))[1:], "\n## ")
	for i, policy := range fenced(t, recipes, "yaml") {
		succeeded(t, os.WriteFile(filepath.Join(limits, fmt.Sprintf("%d.yaml", i)), []byte(policy), 0o600))
	}
	return limits
}

// program returns a program that runs each recipe, in a separate function, after the introduction.
func program(introduction string, recipes []string, address string) string {
	imports, introduction, _ := strings.Cut(introduction, ")\n")
	// Longer than a decision takes on a busy machine.
	introduction = strings.Replace(introduction, `"127.0.0.1:8081"`, fmt.Sprintf("%q, weir.WithDeadline(time.Minute)", address), 1)
	var source strings.Builder
	fmt.Fprintf(&source, "package main\n\n%s)\n", imports)
	var calls strings.Builder
	for i, recipe := range recipes {
		fmt.Fprintf(&source, "\nfunc recipe%d() {\n%s\n_, _ = ctx, check\n%s}\n", i, introduction, recipe)
		fmt.Fprintf(&calls, "fmt.Println(%q)\nrecipe%d()\n", recipeMark, i)
	}
	fmt.Fprintf(&source, "\nfunc main() {\n%s}\n", &calls)
	return source.String()
}

// runProgram builds a program with this module's sources, and returns its output.
func runProgram(t *testing.T, source string) string {
	t.Helper()
	directory := t.TempDir()
	module, err := os.Getwd()
	succeeded(t, err)
	requirements, err := os.ReadFile("go.mod")
	succeeded(t, err)
	const path = "github.com/OWNER/weir/clients/go"
	requirements = append(requirements, fmt.Sprintf("\nrequire %s v0.0.0\nreplace %[1]s => %s\n", path, module)...)
	sums, err := os.ReadFile("go.sum")
	succeeded(t, err)
	for name, content := range map[string]string{
		"go.mod": strings.Replace(string(requirements), "module "+path, "module cookbook", 1), "go.sum": string(sums), "main.go": source,
	} {
		succeeded(t, os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600))
	}
	run := exec.Command("go", "run", "-mod=mod", ".")
	run.Dir = directory
	var told strings.Builder
	run.Stderr = &told
	output, err := run.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, told.String())
	}
	return string(output)
}
