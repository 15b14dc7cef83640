package weir

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const slotTTL = 12 * time.Second

// slowService needs time to reserve, and knows no reservation that is to be extended.
type slowService struct {
	weirv1.RateLimiterClient
	takes     time.Duration
	cancelled []string
}

func (s *slowService) Reserve(ctx context.Context, _ *weirv1.ReserveRequest, _ ...grpc.CallOption) (*weirv1.ReserveResponse, error) {
	select {
	case <-time.After(s.takes):
		decision := &weirv1.CheckResponse{Allowed: true}
		return &weirv1.ReserveResponse{Decision: decision, Hold: "1", ExpiresAfter: durationpb.New(slotTTL)}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (s *slowService) Extend(context.Context, *weirv1.ExtendRequest, ...grpc.CallOption) (*weirv1.ExtendResponse, error) {
	return nil, status.Error(codes.NotFound, "")
}

func (s *slowService) Cancel(_ context.Context, request *weirv1.CancelRequest, _ ...grpc.CallOption) (*weirv1.CancelResponse, error) {
	s.cancelled = append(s.cancelled, request.GetHold())
	return &weirv1.CancelResponse{}, nil
}

func (s *slowService) client(t *testing.T) *Client {
	t.Helper()
	config := defaults()
	telemetry, err := newTelemetry(&config, "", &config.breaker)
	if err != nil {
		t.Fatal(err)
	}
	return &Client{service: s, deadline: slotTTL, breaker: &config.breaker, telemetry: telemetry}
}

func TestTheFirstExtensionCountsFromTheRequest(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{
		time.Second:     slotTTL / 3,
		9 * time.Second: 9 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			service := slowService{takes: takes}
			asked := time.Now()
			slot, err := service.client(t).Slot(t.Context(), Key{"exports"})
			if err != nil {
				t.Fatal(err)
			}
			<-slot.Context().Done()
			if extended := time.Since(asked); extended != want {
				t.Errorf("%v: after %v, not %v", takes, extended, want)
			}
		})
	}
}

func TestASlotWhoseCallerGivesUpIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := slowService{takes: time.Second}
		client := service.client(t)
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		asked := time.Now()
		_, err := client.Slot(short, Key{"exports"})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(asked) != time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(asked))
		}
		// Nothing is sent if it has given up already.
		if _, err = client.Slot(short, Key{"exports"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(slotTTL)
		synctest.Wait()
		if len(service.cancelled) != 1 || service.cancelled[0] != "1" {
			t.Errorf("cancelled: %v", service.cancelled)
		}
		if client.breaker.failures != 0 {
			t.Error("it counts as an outage")
		}
	})
}
