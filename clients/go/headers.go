package weir

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// setHeaders sets RateLimit and RateLimit-Policy from the binding limit (draft-ietf-httpapi-ratelimit-headers-11). Without one it sets
// nothing.
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

// maxNameLength is the service's maximum number of characters of a limit's name in a header.
const maxNameLength = 256

type seconds int64

func (s seconds) String() string { return strconv.FormatInt(int64(s), 10) }

// ceilSeconds rounds up, to at least 1, so that a client that waits this long is not early. It takes the longest duration too.
func ceilSeconds(d time.Duration) seconds {
	whole := seconds(d / time.Second)
	if d%time.Second > 0 {
		whole++
	}
	return max(1, whole)
}

// structuredString encodes a string of RFC 9651, which allows only printable ASCII; all other bytes, and %, are percent-encoded.
func structuredString(text string) string {
	if letters := []rune(text); len(letters) > maxNameLength {
		text = string(letters[:maxNameLength])
	}
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
