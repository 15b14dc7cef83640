package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	tokenEvery    = time.Second
	maxTokenBytes = 4096
)

// token is the bearer token, as gRPC's per-call credentials.
type token struct {
	// Empty: the value never changes.
	path   string
	logger *slog.Logger

	mu     sync.Mutex
	value  string
	readAt time.Time
	// The file had no token when it was last read, and this is logged.
	unusable bool
}

// newToken returns nil without a token. It fails for a token that is not valid, and for a file without one.
func newToken(c *config) (*token, error) {
	t := &token{path: c.tokenFile, logger: c.logger, value: c.token, readAt: time.Now()}
	var err error
	switch {
	case t.path != "":
		if t.value, err = readToken(t.path); err != nil {
			return nil, fmt.Errorf("token file: %w", err)
		}
	case t.value == "":
		return nil, nil
	case !isPrintable(t.value):
		return nil, errors.New("token: it must be printable ASCII")
	}
	return t, nil
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
	if value == "" || len(content) > maxTokenBytes || !isPrintable(value) {
		return "", fmt.Errorf("%s: a token has 1 to %d bytes, all printable ASCII", path, maxTokenBytes)
	}
	return value, nil
}

// isPrintable reports whether a header can carry the token. gRPC fails calls with any other one.
func isPrintable(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

// current returns the token, read again if it is older than a second; empty if there is none. The caller waits for the file: a few
// microseconds, bounded by the maximum size.
func (t *token) current() string {
	if t == nil {
		return ""
	}
	if t.path == "" {
		return t.value
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.readAt) >= tokenEvery {
		t.readAt = time.Now()
		value, err := readToken(t.path)
		switch {
		case err == nil:
			t.value = value
		case !t.unusable:
			t.logger.Warn("the last token is sent: the token file has none", "error", err)
		}
		t.unusable = err != nil
	}
	return t.value
}

func (t *token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + t.current()}, nil
}

// RequireTransportSecurity returns false: loopback and Unix sockets need no TLS.
func (t *token) RequireTransportSecurity() bool {
	return false
}
