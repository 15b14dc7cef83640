// Package guard is a middleware for net/http: it checks each request with Weir, answers refusals with 429, and
// returns rate-limit headers. Without a decision requests pass (fail open).
package guard

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"weir.example/client/weirv1"
)

// Guard wraps handlers.
type Guard struct {
	Weir *Weir
	// User is the client of this service.
	User func(*http.Request) string
}

// Open guards a route, which passes while there is no decision: its key is user / (who) / route.
func (g Guard) Open(route string, next http.HandlerFunc) http.HandlerFunc {
	return g.wrap(route, false, next)
}

// Closed guards a route that is refused while there is no decision, since to try it without end would be worse.
func (g Guard) Closed(route string, next http.HandlerFunc) http.HandlerFunc {
	return g.wrap(route, true, next)
}

func (g Guard) wrap(route string, failClosed bool, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := g.Weir.Check(r.Context(), "user", g.User(r), route)
		if answer == nil && failClosed {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable)
			return
		}
		setHeaders(w.Header(), answer)
		if answer != nil && !answer.Allowed {
			refuse(w, http.StatusTooManyRequests)
			return
		}
		next(w, r)
	}
}

func refuse(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"title": %q, "status": %d}`, http.StatusText(code), code)
}

// setHeaders tells what the limit that binds says, as draft-ietf-httpapi-ratelimit-headers-11 has it. Nothing where nothing is limited.
func setHeaders(header http.Header, answer *weirv1.CheckResponse) {
	if answer == nil || answer.Binding == nil {
		return
	}
	level := answer.Levels[*answer.Binding]
	name := structuredString(level.Name)
	left := fmt.Sprintf("%s;r=%d", name, level.Remaining)
	if level.RetryAfter != nil {
		retry := max(1, wholeSeconds(level.RetryAfter))
		header.Set("Retry-After", strconv.FormatInt(retry, 10))
	}
	if level.NextAfter != nil {
		left += fmt.Sprintf(";t=%d", max(1, wholeSeconds(level.NextAfter)))
	}
	header.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d", name, level.Limit))
	header.Set("RateLimit", left)
}

// wholeSeconds rounds up: who comes back then is not early.
func wholeSeconds(duration *durationpb.Duration) int64 {
	return int64((duration.AsDuration() + time.Second - 1) / time.Second)
}

// structuredString is a string of RFC 9651, which holds printable ASCII alone; the rest is percent-encoded.
func structuredString(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.Write([]byte{'\\', c})
		case c < ' ' || c > '~' || c == '%':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
