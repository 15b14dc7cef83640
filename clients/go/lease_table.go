package weir

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// Checks of further keys are ordinary checks.
	maxLeases = 10_000
	// A power of two.
	leaseBuckets = 4096
)

// leaseTable maps keys to leases. Finding one takes no lock and allocates nothing.
type leaseTable struct {
	seed    maphash.Seed
	buckets [leaseBuckets]atomic.Pointer[lease]

	// Must be held to change the table.
	mu   sync.Mutex
	size int
}

func (t *leaseTable) hash(domain string, key Key) uint64 {
	hash := maphash.String(t.seed, domain)
	for _, segment := range key {
		hash = bits.RotateLeft64(hash, 23)*0x9e3779b97f4a7c15 ^ maphash.String(t.seed, segment)
	}
	return hash
}

func (t *leaseTable) bucket(hash uint64) *atomic.Pointer[lease] {
	return &t.buckets[hash%leaseBuckets]
}

func (t *leaseTable) find(hash uint64, domain string, key Key) *lease {
	for l := t.bucket(hash).Load(); l != nil; l = l.next.Load() {
		if l.hash == hash && l.is(domain, key) {
			return l
		}
	}
	return nil
}

// insert finds or creates the lease of a key; nil if the table is full. The caller must hold the lock.
func (t *leaseTable) insert(hash uint64, domain string, key Key) *lease {
	if l := t.find(hash, domain, key); l != nil || t.size == maxLeases {
		return l
	}
	l := newLease(domain, key, hash)
	bucket := t.bucket(hash)
	l.next.Store(bucket.Load())
	bucket.Store(l)
	t.size++
	return l
}

// remove removes the leases for which drop returns true. The caller must hold the lock.
func (t *leaseTable) remove(drop func(*lease) bool) {
	for i := range t.buckets {
		link := &t.buckets[i]
		for l := link.Load(); l != nil; l = link.Load() {
			if !drop(l) {
				link = &l.next
				continue
			}
			// A concurrent reader at the removed lease still reaches those after it.
			link.Store(l.next.Load())
			t.size--
		}
	}
}

func (t *leaseTable) each(visit func(*lease)) {
	for i := range t.buckets {
		for l := t.buckets[i].Load(); l != nil; l = l.next.Load() {
			visit(l)
		}
	}
}
