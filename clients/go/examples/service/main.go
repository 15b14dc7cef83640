// Command service is a guarded service: each user has limits, and so has each route of a user.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/weirhttp"
)

func main() {
	client, err := connect()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	http.Handle("/trade", weirhttp.Middleware(client, userAnd("trade"))(say("traded")))
	// Unlimited attempts would be worse than an outage.
	http.Handle("/login", weirhttp.Middleware(client, userAnd("login"), weir.OnFailure(weir.Deny))(say("welcome")))
	http.Handle("/health", say("healthy"))
	http.Handle("/", weirhttp.Middleware(client, userAnd("other"))(http.NotFoundHandler()))

	listener, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8000"))
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("serving on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}

// connect reads WEIR_ADDR, WEIR_DEADLINE_MS, WEIR_TOKEN and WEIR_TLS_CA.
func connect() (*weir.Client, error) {
	deadlineMs, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_DEADLINE_MS"), "50"))
	if err != nil {
		return nil, fmt.Errorf("WEIR_DEADLINE_MS: %w", err)
	}
	options := []weir.Option{
		weir.WithDeadline(time.Duration(deadlineMs) * time.Millisecond),
		weir.WithToken(os.Getenv("WEIR_TOKEN")),
	}
	if ca := os.Getenv("WEIR_TLS_CA"); ca != "" {
		options = append(options, weir.WithTLS(weir.TLS{CA: ca}))
	}
	return weir.New(cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:8081"), options...)
}

// Take the user from your authentication, never from a header that the client sets, as here.
func userAnd(route string) weirhttp.KeyFunc {
	return weirhttp.Path(weirhttp.Text("user"), user, weirhttp.Text(route))
}

func user(r *http.Request) string {
	return cmp.Or(r.Header.Get("X-User"), "anonymous")
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, text)
	})
}
