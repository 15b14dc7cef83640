package weir

import (
	"context"
	"errors"
	"time"
)

// ErrSlotLost is the cause of the end of Slot.Context where the slot was lost: another holder may have it.
var ErrSlotLost = errors.New("weir: the slot is lost")

// Slot is one of so many that may be held at the same time, by a concurrency limit. It is extended in the background until it is
// released; the slot of a process that dies is free after its TTL.
type Slot struct {
	// Decision says whether a slot is held.
	Decision Decision

	reservation *Reservation
	held        context.Context
	stop        context.CancelCauseFunc
	extending   chan struct{}
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
	switch {
	case !s.Decision.Allowed:
		s.stop(nil)
		close(s.extending)
	case reservation.hold == "" || s.Decision.Degraded:
		close(s.extending)
	default:
		go s.extend(asked)
	}
	return s, nil
}

// Context is that of the work under the slot: it ends when the slot is lost (context.Cause: ErrSlotLost) or released.
func (s *Slot) Context() context.Context {
	return s.held
}

// Lost reports whether the slot was lost before it was released.
func (s *Slot) Lost() bool {
	return errors.Is(context.Cause(s.held), ErrSlotLost)
}

// Release gives the slot back. It is sent also where the context has ended. An error means that the slot is free after its TTL.
func (s *Slot) Release(ctx context.Context) error {
	s.stop(nil)
	<-s.extending
	if s.Lost() || !s.Decision.Allowed {
		return nil
	}
	_, err := s.reservation.CommitAll(context.WithoutCancel(ctx))
	return err
}

// extend holds the slot until it is released. At a third of its time, each attempt bounded by a sixth, so that after one that hangs there
// is time for two more.
func (s *Slot) extend(since time.Time) {
	defer close(s.extending)
	sixth := s.reservation.ExpiresAfter / 6
	pause := 2 * sixth
	ends := since.Add(s.reservation.ExpiresAfter)
	for {
		select {
		case <-s.held.Done():
			return
		case <-time.After(min(pause, time.Until(ends))):
		}
		asked := time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.held), sixth)
		expiresAfter, err := s.reservation.Extend(ctx, 0)
		cancel()
		switch {
		case err == nil:
			sixth, ends = expiresAfter/6, asked.Add(expiresAfter)
			pause = 2 * sixth
		case errors.Is(err, ErrNotFound), !time.Now().Before(ends):
			s.stop(ErrSlotLost)
			return
		default:
			pause = sixth
		}
	}
}
