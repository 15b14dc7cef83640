package weir

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

const logEvery = 10 * time.Second

// outageLog logs checks without a decision, each reason at most once in ten seconds.
type outageLog struct {
	logger *slog.Logger

	mu sync.Mutex
	// By reason; there are few.
	logged map[string]*logged
}

type logged struct {
	checks     int
	quietUntil time.Time
}

func newOutageLog(logger *slog.Logger) *outageLog {
	return &outageLog{logger: logger, logged: map[string]*logged{}}
}

func (l *outageLog) tell(err error, mode FailureMode) {
	checks, now := l.due(reason(err))
	if !now {
		return
	}
	impact := "requests pass unlimited"
	if mode == Deny {
		impact = "requests are refused"
	}
	code, outage := "Unknown", false
	var e *Error
	if errors.As(err, &e) {
		code, outage = e.Code.String(), e.Outage()
	}
	if outage {
		l.logger.Warn(impact+": no answer from weir", "code", code, "error", err, "checks", checks)
		return
	}
	l.logger.Error(impact+": weir is set up wrongly", "code", code, "error", err, "checks", checks)
}

// due counts a check, and reports whether to log it now.
func (l *outageLog) due(reason string) (checks int, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.logged[reason]
	if t == nil {
		t = &logged{}
		l.logged[reason] = t
	}
	t.checks++
	if time.Now().Before(t.quietUntil) {
		return 0, false
	}
	t.quietUntil = time.Now().Add(logEvery)
	return t.checks, true
}
