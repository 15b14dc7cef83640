// A guarded service: each user has limits, and so has each route of a user.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"weir.example/client/guard"
)

func main() {
	weir, err := guard.Connect()
	if err != nil {
		log.Fatal(err)
	}
	guarded := guard.Guard{Weir: weir, User: user}
	http.HandleFunc("/trade", guarded.Open("trade", say("traded")))
	http.HandleFunc("/login", guarded.Closed("login", say("welcome")))
	http.HandleFunc("/health", say("healthy"))
	http.HandleFunc("/", guarded.Open("other", http.NotFound))

	listener, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8000"))
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("serving on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}

// Take the user from what your authentication has found, never from a header that anybody may set, as here.
func user(r *http.Request) string {
	return cmp.Or(r.Header.Get("X-User"), "anonymous")
}

func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, text)
	}
}
