package weir

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	tokenEvery    = time.Second
	maxTokenBytes = 4096
)

// token is gRPC's credentials of each call.
type token struct {
	// Empty: the value never changes.
	path string

	mu     sync.Mutex
	value  string
	readAt time.Time
}

// newTokenFile fails where the file has no token, since that is a mistake at start.
func newTokenFile(path string) (*token, error) {
	value, err := readToken(path)
	if err != nil {
		return nil, err
	}
	return &token{path: path, value: value, readAt: time.Now()}, nil
}

func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxTokenBytes+1))
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(content))
	if value == "" || len(content) > maxTokenBytes {
		return "", fmt.Errorf("%s: a token has 1 to %d bytes", path, maxTokenBytes)
	}
	return value, nil
}

// current is the token, read again once it is a second old. Its size, not its time, bounds what that costs: a few microseconds.
func (t *token) current() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path != "" && time.Since(t.readAt) >= tokenEvery {
		t.readAt = time.Now()
		if value, err := readToken(t.path); err == nil {
			t.value = value
		}
	}
	return t.value
}

func (t *token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + t.current()}, nil
}

// RequireTransportSecurity is false, since loopback and unix sockets need none.
func (t *token) RequireTransportSecurity() bool {
	return false
}
