package weirhttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"github.com/OWNER/weir/clients/go/weirhttp"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

func connect(target string, options ...weir.Option) *weir.Client {
	client, err := weir.New(target, append([]weir.Option{weir.WithDeadline(weirtest.Patient)}, options...)...)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func ExampleMiddleware() {
	client := connect(os.Getenv("WEIR_ADDR"))
	defer client.Close()
	user := weirhttp.Header("X-User") // Behind a proxy that sets it; else weirhttp.Principal.
	limit := weirhttp.Middleware(client, weirhttp.Path(weirhttp.Text("user"), user, weirhttp.Text("trade")))
	login := weirhttp.Middleware(client, weirhttp.Path(weirhttp.Text("user"), user, weirhttp.Route()), weir.OnFailure(weir.Deny))
	mux := http.NewServeMux()
	mux.Handle("POST /trade", limit(http.HandlerFunc(trade)))
	mux.Handle("POST /login", login(http.HandlerFunc(trade)))
	server := httptest.NewServer(mux)
	defer server.Close()
	for range 7 {
		request, _ := http.NewRequest(http.MethodPost, server.URL+"/trade", nil)
		request.Header.Set("X-User", "alex")
		response, err := server.Client().Do(request)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(response.Status)
	}
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// 429 Too Many Requests
}

func trade(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "traded") }

func serve(t *testing.T, client *weir.Client, key weirhttp.KeyFunc, options ...weir.CheckOption) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("GET /trade", weirhttp.Middleware(client, key, options...)(http.HandlerFunc(trade)))
	request := httptest.NewRequest(http.MethodGet, "/trade", nil)
	request.Header.Set("X-User", "alex")
	request = request.WithContext(context.WithValue(request.Context(), principal{}, "berta"))
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, request)
	return recorder
}

type principal struct{}

func TestAnswers(t *testing.T) {
	server := weirtest.Start(t, weirtest.Limits)
	client := connect(server.Grpc)
	defer client.Close()
	key := weirhttp.Path(weirhttp.Text("user"), weirhttp.Header("X-User"), weirhttp.Text("trade"))
	for _, left := range []string{"r=2", "r=1", "r=0;t=86"} {
		answer := serve(t, client, key)
		if answer.Code != 200 || answer.Body.String() != "traded\n" || !strings.HasPrefix(answer.Header().Get("RateLimit"), `"trades";`+left) {
			t.Errorf("%+v", answer)
		}
	}
	answer := serve(t, client, key)
	if answer.Code != 429 || answer.Header().Get("Retry-After") == "" || answer.Header().Get("RateLimit-Policy") != `"trades";q=3` ||
		!strings.Contains(answer.Body.String(), `"status":429`) {
		t.Errorf("%+v", answer)
	}
	if answer := serve(t, client, func(*http.Request) weir.Key { return nil }); answer.Code != 200 || answer.Header().Get("RateLimit") != "" {
		t.Errorf("not limited: %+v", answer)
	}
}

func TestWithoutService(t *testing.T) {
	client := connect(weirtest.FreeAddress(t), weir.WithDeadline(50*time.Millisecond))
	defer client.Close()
	key := weirhttp.Path(weirhttp.Text("user"))
	if answer := serve(t, client, key); answer.Code != 200 {
		t.Errorf("open: %+v", answer)
	}
	if answer := serve(t, client, key, weir.OnFailure(weir.Deny)); answer.Code != 503 || answer.Header().Get("Retry-After") != "1" {
		t.Errorf("closed: %+v", answer)
	}
}

func TestSegments(t *testing.T) {
	var got weir.Key
	key := weirhttp.Path(weirhttp.Route(), weirhttp.RemoteIP(), weirhttp.Principal(principal{}), weirhttp.Principal("none"), weirhttp.Header("X-None"))
	client := connect(weirtest.FreeAddress(t), weir.WithDeadline(time.Millisecond))
	defer client.Close()
	serve(t, client, func(r *http.Request) weir.Key {
		got = key(r)
		return got
	})
	if fmt.Sprintf("%q", got) != `["GET /trade" "192.0.2.1" "berta" "" ""]` {
		t.Errorf("%q", got)
	}
}
