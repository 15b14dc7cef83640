package weir_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// matches compares text with a pattern.
func matches(t testing.TB, what, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
		t.Errorf("%s: %q, not %q", what, got, pattern)
	}
}

func refused(t testing.TB, verdict weir.Verdict, status int, kind string) {
	t.Helper()
	equal(t, "pass", verdict.Pass, false)
	equal(t, "status", verdict.Status, status)
	equal(t, "content type", verdict.Header.Get("Content-Type"), "application/problem+json")
	var problem struct {
		Type, Title string
		Status      int
	}
	succeeded(t, json.Unmarshal(verdict.Body, &problem))
	equal(t, "type", problem.Type, "https://iana.org/assignments/http-problem-types#"+kind)
	equal(t, "title", problem.Title, http.StatusText(status))
	equal(t, "status", problem.Status, status)
}

// About a day, in seconds.
const aDay = `86[34]\d\d`

func TestGuard(t *testing.T) {
	server := weirtest.Start(t, strings.Replace(weirtest.Limits, "name: trades", `name: 'trades "ä"'`, 1))
	client := connect(t, server.Grpc)
	quoted := `"trades \"%C3%A4\""`
	for _, left := range []string{"r=2", "r=1", "r=0;t=" + aDay} {
		verdict := client.Guard(ctx, trade)
		equal(t, "pass", verdict.Pass, true)
		matches(t, "RateLimit", verdict.Header.Get("RateLimit"), regexp.QuoteMeta(quoted)+";"+left)
		equal(t, "RateLimit-Policy", verdict.Header.Get("RateLimit-Policy"), quoted+";q=3")
		equal(t, "headers", len(verdict.Header), 2)
	}
	verdict := client.Guard(ctx, trade)
	refused(t, verdict, http.StatusTooManyRequests, "quota-exceeded")
	matches(t, "Retry-After", verdict.Header.Get("Retry-After"), aDay)
	matches(t, "RateLimit", verdict.Header.Get("RateLimit"), regexp.QuoteMeta(quoted)+";r=0;t="+aDay)
	equal(t, "headers", len(verdict.Header), 4)

	never := client.Guard(ctx, weir.Key{"user", "carla", "trade"}, weir.Cost(4))
	refused(t, never, http.StatusTooManyRequests, "quota-exceeded")
	equal(t, "retry", never.Header.Get("Retry-After"), "")

	unlimited := client.Guard(ctx, weir.Key{"unlimited"})
	equal(t, "pass", unlimited.Pass, true)
	equal(t, "headers", len(unlimited.Header), 0)
}

func TestABanUntilTheYear9999IsToldWithTheLongestDuration(t *testing.T) {
	server, client := started(t)
	leases := connect(t, server.Grpc, weir.WithLease())
	leasing(t, leases, hot)
	server.Ban(t)
	weirtest.Until(t, "the ban refuses", func() bool { return !check(t, leases, hot).Allowed })
	for range 50 {
		for _, verdict := range []weir.Verdict{client.Guard(ctx, trade), leases.Guard(ctx, trade), leases.Guard(ctx, hot)} {
			refused(t, verdict, http.StatusTooManyRequests, "quota-exceeded")
			// 292 years.
			matches(t, "Retry-After", verdict.Header.Get("Retry-After"), `92233720\d\d`)
		}
	}
}

func TestGuardRepairsKeys(t *testing.T) {
	server, client := started(t)
	for _, key := range []weir.Key{
		{"user", "", "trade"},
		{"user", strings.Repeat("x", 3000), "trade"},
		{"user", strings.Repeat("ä", 513), "trade"},
		{"user", strings.Repeat("x", 1023) + "ä", "trade"},
		{"user", "\xff\xfe", "trade"},
		append(weir.Key{"user", "deep", "trade"}, strings.Split("a/path/of/a/user"+strings.Repeat("/x", 100), "/")...),
	} {
		verdict := client.Guard(ctx, key)
		equal(t, "limited", verdict.Header.Get("RateLimit"), `"trades";r=2`)
	}
	equal(t, "an empty key", client.Guard(ctx, nil).Decision.Source, weir.Service)
	equal(t, "the caller's key", len(trade), 3)
	equal(t, "errors", server.Metric(t, `weir_checks_total{domain="default",transport="grpc",outcome="error"}`), 0)
	equal(t, "repaired", remaining(t, client, weir.Key{"user", "-", "trade"}), 2)
	equal(t, "cut", remaining(t, client, weir.Key{"user", strings.Repeat("ä", 512), "trade"}), 2)
	equal(t, "cut between letters", remaining(t, client, weir.Key{"user", strings.Repeat("x", 1023), "trade"}), 2)
}

func TestAUserWhoHangsUpIsChargedAllTheSame(t *testing.T) {
	_, client := started(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	equal(t, "limited", client.Guard(gone, trade).Header.Get("RateLimit"), `"trades";r=2`)
}

// queued lets a request pass every so often; others wait.
func queued(period time.Duration) []weir.CheckOption {
	queue := weir.NewLimit(&weirv1.LeakyQueue{Count: 1, Period: durationpb.New(period), Burst: 5})
	return []weir.CheckOption{weir.Limits(queue), weir.MaxWait(time.Hour)}
}

func TestGuardWaits(t *testing.T) {
	_, client := started(t)
	var wait time.Duration
	// On a machine that is slower than the queue the next request waits.
	weirtest.Until(t, "a request waits", func() bool {
		started := time.Now()
		verdict := client.Guard(ctx, weir.Key{"queue"}, queued(time.Second/2)...)
		equal(t, "pass", verdict.Pass, true)
		wait = verdict.Decision.Wait
		if waited := time.Since(started); waited < wait {
			t.Errorf("%v, not %v", waited, wait)
		}
		return wait > 0
	})
}

func TestARequestThatEndsWhileItWaitsDoesNotPass(t *testing.T) {
	_, client := started(t)
	ended, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	equal(t, "the first", client.Guard(ended, weir.Key{"queue"}, queued(time.Hour)...).Pass, true)
	verdict := client.Guard(ended, weir.Key{"queue"}, queued(time.Hour)...)
	refused(t, verdict, http.StatusServiceUnavailable, "temporary-reduced-capacity")
	equal(t, "allowed", verdict.Decision.Allowed, true)
}

func TestLongNamesAreCutInHeaders(t *testing.T) {
	// Without a name it is called by its path.
	long := strings.Repeat("ä", 300)
	policy := "schema: { " + long + ": { limits: [{ gcra: { burst: 2, count: 1, period: 1d } }] } }"
	name := `"` + strings.Repeat("%C3%A4", 256) + `"`
	header := connect(t, weirtest.Start(t, policy).Grpc).Guard(ctx, weir.Key{long}).Header
	equal(t, "RateLimit", header.Get("RateLimit"), name+";r=2")
	equal(t, "RateLimit-Policy", header.Get("RateLimit-Policy"), name+";q=3")
}

func TestGuardWithoutService(t *testing.T) {
	var log bytes.Buffer
	client := connect(t, weirtest.FreeAddress(t), weir.WithDeadline(50*time.Millisecond), weir.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for range 3 {
		verdict := client.Guard(ctx, trade)
		equal(t, "fails open", verdict.Pass, true)
		equal(t, "source", verdict.Decision.Source, weir.Fallback)
		failed(t, verdict.Decision.Err, weir.ErrUnavailable)
		equal(t, "headers", len(verdict.Header), 0)
	}
	equal(t, "told", strings.Count(log.String(), `level=WARN msg="requests pass unlimited: no answer from weir" code=Unavailable`), 1)

	closed := client.Guard(ctx, trade, weir.OnFailure(weir.Deny))
	refused(t, closed, http.StatusServiceUnavailable, "temporary-reduced-capacity")
	equal(t, "retry", closed.Header.Get("Retry-After"), "1")
}

func TestGuardIsSetUpWrongly(t *testing.T) {
	var log bytes.Buffer
	_, client := started(t, weir.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for range 3 {
		equal(t, "fails open", client.Guard(ctx, trade, weir.Domain("unknown")).Pass, true)
	}
	equal(t, "told", strings.Count(log.String(), `level=ERROR msg="requests pass unlimited: weir is set up wrongly" code=NotFound`), 1)
	refused(t, client.Guard(ctx, trade, weir.Domain("unknown"), weir.OnFailure(weir.Deny)), http.StatusServiceUnavailable, "temporary-reduced-capacity")
}
