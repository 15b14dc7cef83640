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

// token is gRPC's credentials of each call.
type token struct {
	// Empty: the value never changes.
	path   string
	logger *slog.Logger

	mu     sync.Mutex
	value  string
	readAt time.Time
	// The file had no token when it was last read: that is logged already.
	unusable bool
}

// newToken is nil without a token. It fails where there is none to send, since that is a mistake at start.
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

// isPrintable reports whether a header can hold the token. gRPC fails calls with any other one.
func isPrintable(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

// current is the token, read again once it is a second old; empty of none. Its size, not its time, bounds what that costs: a few
// microseconds.
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

// RequireTransportSecurity is false, since loopback and unix sockets need none.
func (t *token) RequireTransportSecurity() bool {
	return false
}
