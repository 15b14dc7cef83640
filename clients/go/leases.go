package weir

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/OWNER/weir/clients/go/internal/hold"
	"github.com/OWNER/weir/clients/go/weirv1"
)

const (
	leaseTick = 20 * time.Millisecond
	// Idle leases are dropped once in this many ticks.
	leaseSweep = 5
)

// leases decides checks of hot keys with units that this client leases. Lock order: the table's, a lease's, mu.
type leases struct {
	breaker *breaker
	// Times of leases are microseconds since epoch, by the monotonic clock.
	epoch  time.Time
	table  leaseTable
	stream *leaseStream

	// Guarded by the table's lock.
	ticking, closed bool

	// The goroutines.
	mu      sync.Mutex
	running sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
	serving bool
}

// leaseVerdict says how a check is decided.
type leaseVerdict int

const (
	// By an ordinary check.
	leaseChecks leaseVerdict = iota
	// Decided by the lease.
	leaseDecides
	// By the lease's request to the service.
	leaseAsks
)

// leaseStep is the next step of a check.
type leaseStep struct {
	verdict leaseVerdict
	// Nil if the check has no lease.
	lease   *lease
	sent    int64
	request hold.Request
}

func newLeases(service weirv1.RateLimiterClient, b *breaker) *leases {
	s := &leases{breaker: b, epoch: time.Now(), table: leaseTable{seed: maphash.MakeSeed()}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stream = newLeaseStream(service, s.finish)
	return s
}

func (s *leases) now() int64 { return time.Since(s.epoch).Microseconds() }

// decide decides a check with leased units, without a lock or an allocation, or returns the next step.
func (s *leases) decide(domain string, key Key, cost int64) (Decision, leaseStep) {
	hash := s.table.hash(domain, key)
	if l := s.table.find(hash, domain, key); l != nil {
		now := s.now()
		switch spent, left := l.balance.Spend(cost, now); spent {
		case hold.Spent:
			return paid(l, left)
		case hold.Low:
			l.mu.Lock()
			s.low(l, now)
			l.mu.Unlock()
			return paid(l, left)
		}
	}
	return s.short(hash, domain, key, cost)
}

func paid(l *lease, left int64) (Decision, leaseStep) {
	return Decision{Allowed: true, Leased: true, Remaining: uint64(left), Source: Lease}, leaseStep{verdict: leaseDecides, lease: l}
}

// short decides a check that the balance could not pay, or returns the next step.
func (s *leases) short(hash uint64, domain string, key Key, cost int64) (Decision, leaseStep) {
	l := s.locked(hash, domain, key)
	if l == nil {
		return Decision{}, leaseStep{}
	}
	defer l.mu.Unlock()
	now := s.now()
	// An answer may have arrived while this check waited for the lock.
	switch spent, left := l.balance.Spend(cost, now); spent {
	case hold.Low:
		s.low(l, now)
		fallthrough
	case hold.Spent:
		return paid(l, left)
	}
	step := leaseStep{verdict: leaseChecks, lease: l, sent: now}
	outcome, retryAfter, request := l.machine.Short(cost, now)
	switch outcome {
	case hold.Refuse:
		step.verdict = leaseDecides
		return Decision{Leased: true, RetryAfter: l.retryAfter(cost, retryAfter, now), Source: Lease}, step
	case hold.Ask:
		step.verdict, step.request = leaseAsks, request
	}
	return Decision{}, step
}

// low renews the lease. The caller must hold the lease's lock.
func (s *leases) low(l *lease, now int64) {
	if request, send := l.machine.Low(now); send {
		s.renew(l, request)
	}
}

// locked finds or creates the lease of a key, and takes its lock; nil if there can be none.
func (s *leases) locked(hash uint64, domain string, key Key) *lease {
	for {
		l := s.table.find(hash, domain, key)
		if l == nil {
			l = s.insert(hash, domain, key)
		}
		if l == nil {
			return nil
		}
		l.mu.Lock()
		if !l.dropped {
			return l
		}
		l.mu.Unlock()
	}
}

func (s *leases) insert(hash uint64, domain string, key Key) *lease {
	if !isText(domain, key) {
		return nil
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.closed {
		return nil
	}
	l := s.table.insert(hash, domain, key)
	if !s.ticking {
		s.ticking = true
		s.running.Go(s.tick)
	}
	return l
}

// tick runs as long as there are leases.
func (s *leases) tick() {
	ticker := time.NewTicker(leaseTick)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		s.table.each(func(l *lease) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if request, send := l.machine.Due(s.now()); send {
				s.renew(l, request)
			}
		})
		if n%leaseSweep == 0 && s.sweep() {
			return
		}
	}
}

// sweep drops idle leases, and reports whether none is left.
func (s *leases) sweep() bool {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.remove(func(l *lease) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dropped = l.machine.Idle(s.now())
		return l.dropped
	})
	s.ticking = s.table.size > 0
	return !s.ticking
}

// checked passes a refused ordinary check to its lease.
func (s *leases) checked(step *leaseStep, cost int64, answer *weirv1.CheckResponse) {
	if l := step.lease; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := s.now()
		l.machine.Checked(cost, step.sent, now)
		l.refused(cost, answer, now)
	}
}

// close returns all leased units to the service, and waits for the answers, at most for the timeout.
func (s *leases) close(timeout time.Duration) {
	bounded, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	deadline, _ := bounded.Deadline()
	var calls []*leaseCall
	s.table.mu.Lock()
	s.closed = true
	s.table.remove(func(l *lease) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dropped = true
		if request, send := l.machine.Close(s.now()); send {
			if call, _ := s.send(l, request, true, deadline); call != nil {
				calls = append(calls, call)
			}
		}
		return true
	})
	s.table.mu.Unlock()
	for _, call := range calls {
		select {
		case <-call.done:
		case <-bounded.Done():
		}
	}
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}
