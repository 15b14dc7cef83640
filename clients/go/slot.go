package weir

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrSlotLost is the cause of the end of Slot.Context where the slot was lost: another holder may have it.
var ErrSlotLost = errors.New("weir: the slot is lost")

// Slot is one of so many that may be held at the same time, by a concurrency limit. It is extended in the background until it is
// released, also where the context of the call that took it has ended; the slot of a process that dies is free after its TTL.
type Slot struct {
	// Decision says whether a slot is held.
	Decision Decision

	reservation *Reservation
	held        context.Context
	stop        context.CancelCauseFunc
	// Ends the extension.
	release   context.CancelFunc
	extending chan struct{}
	// By when the slot must be extended. Nil where it need not be, or no more.
	until atomic.Pointer[time.Time]
	lost  atomic.Bool
}

// Slot takes a slot of each concurrency limit on the path; other limits there are charged the Cost (default 1).
func (c *Client) Slot(ctx context.Context, key Key, options ...ReserveOption) (*Slot, error) {
	// The slot is held from some moment after this one.
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

// Context is that of the work under the slot: it ends with the context that Slot was given, and when the slot is lost (context.Cause:
// ErrSlotLost) or released.
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

// Release gives the slot back. It is sent also where the context has ended. An error means that the slot is free after its TTL.
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

// extend holds the slot until it is released. At a third of its time, each attempt bounded by a sixth, so that after one that hangs there
// is time for two more.
func (s *Slot) extend(ctx context.Context) {
	defer close(s.extending)
	sixth := s.reservation.ExpiresAfter / 6
	pause := 2 * sixth
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
		// An answer after it is lost is of no use.
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
