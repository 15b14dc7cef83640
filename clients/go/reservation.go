package weir

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ReserveOption configures a reservation or a slot. Every CheckOption is one.
type ReserveOption interface {
	reserve(*reserveRequest)
}

type reserveRequest struct {
	check   Request
	message *weirv1.ReserveRequest
}

func (o CheckOption) reserve(r *reserveRequest) { o(&r.check) }

type reserveOption func(*reserveRequest)

func (o reserveOption) reserve(r *reserveRequest) { o(r) }

// TTL sets the time, 10 ms to 24 hours, after which a reservation or a slot expires that is neither settled nor extended. It is required
// unless a concurrency limit is on the path, whose ttl is the default and the maximum.
func TTL(ttl time.Duration) ReserveOption {
	return reserveOption(func(r *reserveRequest) { r.message.Ttl = duration(ttl) })
}

// ReleaseOnExpiry refunds the units of a reservation that expires. By default they count as spent.
func ReleaseOnExpiry() ReserveOption {
	return reserveOption(func(r *reserveRequest) { r.message.OnExpiry = weirv1.OnExpiry_ON_EXPIRY_RELEASE })
}

// Reservation holds units until their real cost is known. Settle it with Commit, and release it with a deferred Cancel:
//
//	reservation, err := client.Reserve(ctx, key, estimate, weir.TTL(2*time.Minute))
//	if err != nil || !reservation.Decision.Allowed {
//		…
//	}
//	defer reservation.Cancel(ctx)
//	…
//	settlement, err := reservation.Commit(ctx, used)
//
// With a Fallback or a Degraded decision nothing is held, and settling changes nothing.
type Reservation struct {
	// Decision says whether units are held.
	Decision Decision
	// ExpiresAfter is the time for which the units are held, from the answer on.
	ExpiresAfter time.Duration

	client   *Client
	hold     string
	ttl      *durationpb.Duration
	deadline time.Duration
	settled  atomic.Bool
}

// Settlement is the settlement of a reservation.
type Settlement struct {
	// Charged is the units charged.
	Charged int64
	// Refunded is the reserved units that were refunded.
	Refunded int64
	// Overage is the units charged beyond the reserved ones.
	Overage uint64
	// Degraded reports that nothing was held, so nothing was settled.
	Degraded bool
}

// Reserve decides as Check does. If the check is allowed, its cost is charged and held.
func (c *Client) Reserve(ctx context.Context, key Key, cost int64, options ...ReserveOption) (*Reservation, error) {
	request := reserveRequest{check: NewRequest(key, Cost(cost)), message: &weirv1.ReserveRequest{}}
	for _, option := range options {
		option.reserve(&request)
	}
	request.message.Check = request.check.message
	return c.reserve(ctx, &request)
}

func (c *Client) reserve(ctx context.Context, request *reserveRequest) (*Reservation, error) {
	ctx, observed := c.telemetry.begin(ctx, request.check.message.GetDomain())
	if c.retries > 0 {
		request.check.identify()
	}
	answer, failure := c.hold(ctx, request)
	decision, err := settle(newDecision(answer.GetDecision()), failure, c.mode(&request.check))
	observed.end(decision, err)
	if err != nil {
		return nil, err
	}
	return &Reservation{
		Decision:     decision,
		ExpiresAfter: answer.GetExpiresAfter().AsDuration(),
		client:       c,
		hold:         answer.GetHold(),
		ttl:          request.message.GetTtl(),
		deadline:     request.check.deadline,
	}, nil
}

// hold makes the call of Reserve, which goes on if ctx ends before the answer: the service may hold the units by then, and the answer alone
// names them. They are refunded when it arrives.
func (c *Client) hold(ctx context.Context, request *reserveRequest) (*weirv1.ReserveResponse, *Error) {
	var answer *weirv1.ReserveResponse
	ended := make(chan *Error)
	if ctx.Err() == nil {
		go func() {
			failure := c.call(context.WithoutCancel(ctx), request.check.deadline, true,
				func(ctx context.Context, options ...grpc.CallOption) (err error) {
					answer, err = c.service.Reserve(ctx, request.message, options...)
					return err
				})
			select {
			case ended <- failure:
			case <-ctx.Done():
				// If it fails, the reservation ends with its TTL.
				_ = (&Reservation{client: c, hold: answer.GetHold()}).Cancel(ctx)
			}
		}()
	}
	select {
	case failure := <-ended:
		return answer, failure
	case <-ctx.Done():
		return nil, asError(status.FromContextError(ctx.Err()).Err())
	}
}

// Commit settles the reservation by the real cost: unused units are refunded, and units beyond the reserved ones are charged
// unconditionally. It is idempotent: the first settlement counts. ErrNotFound: the reservation has expired. During an outage retry it as
// long as it is worth it; Cancel does nothing after a failed Commit.
func (r *Reservation) Commit(ctx context.Context, actual int64) (Settlement, error) {
	return r.commit(ctx, &weirv1.CommitRequest{Hold: r.hold, Actual: &actual})
}

// CommitAll settles the reservation by the reserved units.
func (r *Reservation) CommitAll(ctx context.Context) (Settlement, error) {
	return r.commit(ctx, &weirv1.CommitRequest{Hold: r.hold})
}

func (r *Reservation) commit(ctx context.Context, request *weirv1.CommitRequest) (Settlement, error) {
	// Also if the call fails: a deferred Cancel must not refund units that were used.
	r.settled.Store(true)
	if r.hold == "" {
		return Settlement{Degraded: true}, nil
	}
	var answer *weirv1.CommitResponse
	failure := r.client.call(ctx, r.deadline, true, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = r.client.service.Commit(ctx, request, options...)
		return err
	})
	if failure != nil {
		return Settlement{}, failure
	}
	return Settlement{
		Charged:  answer.GetCharged(),
		Refunded: answer.GetRefunded(),
		Overage:  answer.GetOverage(),
		Degraded: answer.GetDegraded(),
	}, nil
}

// Cancel refunds all reserved units. It does nothing after a Commit, even a failed one, so it can be deferred. It is sent even if the
// context has ended. After an error the reservation ends with its TTL.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r.hold == "" || r.settled.Load() {
		return nil
	}
	failure := r.client.call(context.WithoutCancel(ctx), r.deadline, true, func(ctx context.Context, options ...grpc.CallOption) error {
		_, err := r.client.service.Cancel(ctx, &weirv1.CancelRequest{Hold: r.hold}, options...)
		return err
	})
	if failure != nil {
		return failure
	}
	r.settled.Store(true)
	return nil
}

// Extend holds the reservation for another TTL from now on (0: the TTL of Reserve). It returns the time for which it is held.
func (r *Reservation) Extend(ctx context.Context, ttl time.Duration) (expiresAfter time.Duration, err error) {
	if r.hold == "" {
		return 0, nil
	}
	request := &weirv1.ExtendRequest{Hold: r.hold, Ttl: r.ttl}
	if ttl != 0 {
		request.Ttl = duration(ttl)
	}
	var answer *weirv1.ExtendResponse
	failure := r.client.call(ctx, r.deadline, true, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = r.client.service.Extend(ctx, request, options...)
		return err
	})
	if failure != nil {
		return 0, failure
	}
	return answer.GetExpiresAfter().AsDuration(), nil
}
