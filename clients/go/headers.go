package weir

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// setHeaders tells what the binding limit says, as draft-ietf-httpapi-ratelimit-headers-11 has it. Nothing where nothing is limited.
func setHeaders(header http.Header, decision Decision) {
	level := decision.Binding
	if level == nil {
		return
	}
	name := structuredString(level.Name)
	left := fmt.Sprintf("%s;r=%d", name, level.Remaining)
	if level.NextAfter > 0 {
		left += ";t=" + ceilSeconds(level.NextAfter).String()
	}
	header.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d", name, level.Limit))
	header.Set("RateLimit", left)
}

type seconds int64

func (s seconds) String() string { return strconv.FormatInt(int64(s), 10) }

// ceilSeconds rounds up, to 1 at least: who comes back then is not early.
func ceilSeconds(d time.Duration) seconds {
	return max(1, seconds((d+time.Second-1)/time.Second))
}

// structuredString is a string of RFC 9651, which has printable ASCII alone; the rest is percent-encoded.
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
