// Package weirtest starts the real service, and Redis, for tests.
package weirtest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patient bounds the waiting of tests: long enough for a busy machine.
const Patient = 30 * time.Second

// Limits is the policy of most tests: refilled too slowly to matter during a test.
const Limits = `
schema:
  user:
    children:
      "*":
        limits: [{ gcra: { burst: 99, count: 1, period: 1d }, name: per-user }]
        children:
          trade: { limits: [{ gcra: { burst: 2, count: 1, period: 1d }, name: trades }] }
  many: { children: { "*": { limits: [{ gcra: { burst: 999999, count: 1, period: 1000s }, name: many }] } } }
  exports: { children: { "*": { limits: [{ concurrency: { max: 1, ttl: 1m }, name: exports-at-once }] } } }
  hot: { children: { "*": { limits: [{ gcra: { burst: 99999, count: 1, period: 1h }, name: hot, lease: true }] } } }
  few: { children: { "*": { limits: [{ gcra: { burst: 999, count: 1, period: 1d }, name: few, lease: true }] } } }
  held: { children: { "*": { limits: [{ gcra: { burst: 999, count: 1, period: 1d }, name: held, lease: { ttl: 1m } }] } } }
  ample: { children: { "*": { limits: [{ token_bucket: { capacity: 4000000000, count: 4000000000, period: 1s }, lease: true }] } } }
`

// ExampleLimits is the policy of the examples: like config/limits.yaml, but refilled too slowly to matter during a test, and with a
// concurrency limit.
const ExampleLimits = `
schema:
  user:
    children:
      "*":
        limits: [{ token_bucket: { capacity: 16, count: 1, period: 1d }, name: per-user }]
        children:
          trade: { limits: [{ token_bucket: { capacity: 6, count: 1, period: 1d }, name: trades }] }
  exports: { children: { "*": { limits: [{ concurrency: { max: 1, ttl: 1m }, name: exports-at-once }] } } }
  api: { children: { "*": { limits: [{ token_bucket: { capacity: 10000, count: 10000, period: 1s }, name: per-api, lease: true }] } } }
`

// Server is a process of Weir.
type Server struct {
	// Grpc and Http are the addresses.
	Grpc, Http string

	limits  string
	process *exec.Cmd
	exited  chan struct{}
	log     *strings.Builder
}

// Start starts the service with a policy and settings, each NAME=VALUE, on free loopback ports. It is killed at the end of the test.
func Start(t testing.TB, policy string, settings ...string) *Server {
	t.Helper()
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(limits, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return Serve(t, limits, settings...)
}

// Serve starts the service as Start does, with a policy file or a directory of policy files.
func Serve(t testing.TB, limits string, settings ...string) *Server {
	t.Helper()
	s, err := run(limits, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("weir's log:\n%s", s.log)
		}
	})
	return s
}

// Main runs the tests of a package whose examples call a service at WEIR_ADDR.
func Main(m *testing.M) {
	os.Exit(func() int {
		directory, err := os.MkdirTemp("", "weir")
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(directory)
		limits := filepath.Join(directory, "limits.yaml")
		if err := os.WriteFile(limits, []byte(ExampleLimits), 0o600); err != nil {
			log.Fatal(err)
		}
		server, err := run(limits)
		if err != nil {
			log.Fatal(err)
		}
		defer server.Kill()
		if err := os.Setenv("WEIR_ADDR", server.Grpc); err != nil {
			log.Fatal(err)
		}
		return m.Run()
	}())
}

func run(limits string, settings ...string) (*Server, error) {
	s := &Server{
		limits:  limits,
		process: exec.Command(Binary(), "serve", "--limits", limits),
		exited:  make(chan struct{}),
		log:     &strings.Builder{},
	}
	ours := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WEIR_") })
	s.process.Env = append(ours, "WEIR_GRPC__LISTEN=127.0.0.1:0", "WEIR_HTTP__LISTEN=127.0.0.1:0",
		"WEIR_LOG__FORMAT=json", "WEIR_SHUTDOWN__DELAY=1ms")
	s.process.Env = append(s.process.Env, settings...)
	output, err := s.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("no weir to test (WEIR_BINARY names it): %w", err)
	}
	serving := make(chan struct{})
	go s.follow(output, serving)
	select {
	case <-serving:
		return s, nil
	case <-s.exited:
	case <-time.After(Patient):
		s.Kill()
	}
	return nil, fmt.Errorf("weir does not serve:\n%s", s.log)
}

// follow reads the log until the process exits. The log may be read once exited is closed.
func (s *Server) follow(output io.Reader, serving chan struct{}) {
	var once sync.Once
	for lines := bufio.NewScanner(output); lines.Scan(); {
		s.log.WriteString(lines.Text() + "\n")
		var line struct{ Message, Grpc, Http string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "serving" {
			once.Do(func() {
				s.Grpc, s.Http = line.Grpc, line.Http
				close(serving)
			})
		}
	}
	_ = s.process.Wait()
	close(s.exited)
}

// Enforce replaces the policy file, which the service reloads automatically.
func (s *Server) Enforce(t testing.TB, policy string) {
	t.Helper()
	if err := os.WriteFile(s.limits, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Ban refuses all requests until the year 9999: for longer than a time.Duration can be.
func (s *Server) Ban(t testing.TB) {
	t.Helper()
	output, err := exec.Command(Binary(), "ban", "--all-keys", "--reason", "a test", "--until", "9999-12-31T00:00:00Z", "--addr", s.Grpc).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// Kill kills the process (SIGKILL).
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop shuts the service down gracefully (SIGTERM).
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.end(syscall.SIGTERM)
	if !s.process.ProcessState.Success() {
		t.Fatalf("weir does not stop gracefully: %s", s.process.ProcessState)
	}
}

// Freeze stops the process without closing its connections (SIGSTOP).
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	_ = s.process.Process.Signal(syscall.SIGSTOP)
	Until(t, "each thread stands still", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.process.Process.Pid))
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return true
	})
}

// Thaw continues the process after Freeze (SIGCONT).
func (s *Server) Thaw() { _ = s.process.Process.Signal(syscall.SIGCONT) }

func (s *Server) end(signal syscall.Signal) {
	_ = s.process.Process.Signal(signal)
	<-s.exited
}

// Metric returns the value of a series of /metrics; 0 if there is none.
func (s *Server) Metric(t testing.TB, series string) (value float64) {
	t.Helper()
	response, err := http.Get("http://" + s.Http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), series+" "); found {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return value
}

// Redis starts a Redis server until the end of the test. It returns the settings of a Weir that uses it, with timeouts for a busy machine.
func Redis(t testing.TB) []string {
	t.Helper()
	address := FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	redis := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = redis.Process.Kill()
		_ = redis.Wait()
	})
	Until(t, "redis-server listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return []string{"WEIR_STORE__URL=redis://" + address, "WEIR_STORE__REDIS__COMMAND_TIMEOUT=10s", "WEIR_STORE__REDIS__CONNECT_TIMEOUT=10s"}
}

// FreeAddress returns a loopback address on which no process listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Until waits for a condition, at most Patient.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(Patient); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Binary returns the path of the service to test: WEIR_BINARY, or the binary that cargo has built in the repository.
func Binary() string {
	if path := os.Getenv("WEIR_BINARY"); path != "" {
		return path
	}
	target := filepath.Join(root(), "target")
	for _, profile := range []string{"release", "debug"} {
		if path := filepath.Join(target, profile, "weir"); !errors.Is(exists(path), os.ErrNotExist) {
			return path
		}
	}
	return "weir"
}

// Repository returns the repository's root, for tests that read files outside the module: WEIR_REPOSITORY, or the repository of these
// sources. Without one the test is skipped.
func Repository(t testing.TB) string {
	t.Helper()
	path := cmp.Or(os.Getenv("WEIR_REPOSITORY"), root())
	if exists(filepath.Join(path, "clients", "traces")) != nil {
		t.Skip("WEIR_REPOSITORY names no repository")
	}
	return path
}

func root() string {
	_, source, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(source), "..", "..", "..", "..")
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
