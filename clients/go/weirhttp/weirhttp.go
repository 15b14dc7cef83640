// Package weirhttp guards net/http handlers with Weir: refused requests are answered with 429, Retry-After, RateLimit and RateLimit-Policy.
//
//	limit := weirhttp.Middleware(client, weirhttp.Path(weirhttp.Text("user"), weirhttp.Header("X-User"), weirhttp.Route()))
//	http.Handle("/trade", limit(trade))
package weirhttp

import (
	"maps"
	"net"
	"net/http"

	weir "github.com/OWNER/weir/clients/go"
)

// KeyFunc returns the key under which a request is limited. A request with a nil key is not limited.
type KeyFunc func(*http.Request) weir.Key

// Middleware limits a handler with the client's Guard. It fails open, unless OnFailure(Deny) is set here or for the client: then requests
// are answered with 503 if the service does not decide.
func Middleware(client *weir.Client, key KeyFunc, options ...weir.CheckOption) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path := key(r)
			if path == nil {
				next.ServeHTTP(w, r)
				return
			}
			verdict := client.Guard(r.Context(), path, options...)
			maps.Copy(w.Header(), verdict.Header)
			if verdict.Pass {
				next.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(verdict.Status)
			// It fails if the client has disconnected.
			_, _ = w.Write(verdict.Body)
		})
	}
}

// Segment returns one segment of a key. An empty segment becomes "-".
type Segment func(*http.Request) string

// Path builds the key from segments, root first.
func Path(segments ...Segment) KeyFunc {
	return func(r *http.Request) weir.Key {
		key := make(weir.Key, len(segments))
		for i, segment := range segments {
			key[i] = segment(r)
		}
		return key
	}
}

// Text is a constant segment.
func Text(text string) Segment {
	return func(*http.Request) string { return text }
}

// Header is a header of the request. Take the user from authentication, not from a header that the client sets.
func Header(name string) Segment {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// Principal is the authenticated user, a value in the request's context. A value that is not a string becomes "-".
func Principal(key any) Segment {
	return func(r *http.Request) string {
		principal, _ := r.Context().Value(key).(string)
		return principal
	}
}

// Route is the pattern that http.ServeMux has matched, such as "POST /trade". Only handlers inside the ServeMux have one.
func Route() Segment {
	return func(r *http.Request) string { return r.Pattern }
}

// RemoteIP is the IP address of the peer; behind a proxy, the proxy's.
func RemoteIP() Segment {
	return func(r *http.Request) string {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return r.RemoteAddr
		}
		return host
	}
}
