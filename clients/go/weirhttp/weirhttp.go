// Package weirhttp guards net/http handlers by Weir: refused requests are answered with 429, Retry-After, RateLimit and
// RateLimit-Policy.
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

// KeyFunc is the key under which a request is limited. A nil key is not limited.
type KeyFunc func(*http.Request) weir.Key

// Middleware limits a handler by a client's Guard. It fails open, unless the option OnFailure(Deny) or the client says otherwise.
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
			// A client that has gone does not read it.
			_, _ = w.Write(verdict.Body)
		})
	}
}

// Segment is one segment of a key. An empty one becomes "-".
type Segment func(*http.Request) string

// Path is a key of segments, root first.
func Path(segments ...Segment) KeyFunc {
	return func(r *http.Request) weir.Key {
		key := make(weir.Key, len(segments))
		for i, segment := range segments {
			key[i] = segment(r)
		}
		return key
	}
}

// Text is the same for each request.
func Text(text string) Segment {
	return func(*http.Request) string { return text }
}

// Header is a header of the request. Take the user from what authentication has found, not from a header that the client sets.
func Header(name string) Segment {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// Principal is what authentication has found, by a key of the request's context. A value that is not a string is "-".
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

// RemoteIP is the address of the peer: of a proxy, where there is one.
func RemoteIP() Segment {
	return func(r *http.Request) string {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return r.RemoteAddr
		}
		return host
	}
}
