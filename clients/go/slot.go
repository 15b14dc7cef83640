package weir

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrSlotLost is the cause of Slot.Context if the slot was lost: another client may hold it.
var ErrSlotLost = errors.New("weir: the slot is lost")

// Slot is one slot of a concurrency limit. It is extended in the background until it is released, even if the context of Client.Slot has
// ended. If the process dies, the slot is free after its TTL.
type Slot struct {
	// Decision says whether a slot is held.
	Decision Decision

	reservation *Reservation
	held        context.Context
	stop        context.CancelCauseFunc
	// Stops the extension.
	release   context.CancelFunc
	extending chan struct{}
	// The slot must be extended by then. Nil if it need not be.
	until atomic.Pointer[time.Time]
	lost  atomic.Bool
}

// Slot takes a slot of each concurrency limit on the path. Other limits there are charged the Cost (default 1).
func (c *Client) Slot(ctx context.Context, key Key, options ...ReserveOption) (*Slot, error) {
	// The TTL starts after this moment.
	asked := time.Now()
	reservation, err := c.Reserve(ctx, key, 1, options...)
	if err != nil {
		return nil, err
	}
	s := &Slot{Decision: reservation.Decision, reservation: reservation, extending: make(chan struct{})}
	s.held, s.stop = context.WithCancelCause(ctx)
	extension, release := context.WithCancel(context.WithoutCancel(ctx))
	s.release = release
	switch {
	case !s.Decision.Allowed:
		s.stop(nil)
		close(s.extending)
	case reservation.hold == "" || s.Decision.Degraded:
		close(s.extending)
	default:
		s.heldUntil(asked.Add(reservation.ExpiresAfter))
		go s.extend(extension)
	}
	return s, nil
}

func (s *Slot) heldUntil(until time.Time) { s.until.Store(&until) }

// Context is the context for the work under the slot. It ends with the context given to Client.Slot, and when the slot is lost
// (context.Cause is ErrSlotLost) or released.
func (s *Slot) Context() context.Context {
	return s.held
}

// Lost reports whether the slot was lost before it was released.
func (s *Slot) Lost() bool {
	if until := s.until.Load(); until != nil && !time.Now().Before(*until) {
		s.lose()
	}
	return s.lost.Load()
}

func (s *Slot) lose() {
	s.lost.Store(true)
	s.stop(ErrSlotLost)
}

// Release releases the slot. It is sent even if the context has ended. After an error the slot is free after its TTL.
func (s *Slot) Release(ctx context.Context) error {
	s.release()
	<-s.extending
	lost := s.Lost()
	s.until.Store(nil)
	s.stop(nil)
	if lost || !s.Decision.Allowed {
		return nil
	}
	_, err := s.reservation.CommitAll(context.WithoutCancel(ctx))
	return err
}

// extend extends the slot until it is released: after a third of its time, each attempt bounded by a sixth, so that after an attempt that
// hangs two more are possible.
func (s *Slot) extend(ctx context.Context) {
	defer close(s.extending)
	sixth := s.reservation.ExpiresAfter / 6
	// Counted from the request.
	pause := time.Until(*s.until.Load()) - 4*sixth
	for {
		until := *s.until.Load()
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(pause, time.Until(until))):
		}
		if s.Lost() {
			return
		}
		asked := time.Now()
		// An answer after the slot is lost is useless.
		attempt, cancel := context.WithTimeout(ctx, min(sixth, until.Sub(asked)))
		expiresAfter, err := s.reservation.Extend(attempt, 0)
		cancel()
		switch {
		case err == nil:
			s.heldUntil(asked.Add(expiresAfter))
			sixth = expiresAfter / 6
			pause = 2 * sixth
		case errors.Is(err, ErrNotFound):
			s.lose()
			return
		default:
			pause = sixth
		}
	}
}
