package weir

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/OWNER/weir/clients/go/weirv1"
)

// Algorithm is the message of a rate-limiting algorithm.
type Algorithm interface {
	proto.Message
	*weirv1.Gcra | *weirv1.TokenBucket | *weirv1.LeakyBucket | *weirv1.LeakyQueue | *weirv1.FixedWindow | *weirv1.SlidingLog |
		*weirv1.SlidingWindow | *weirv1.SlidingBuckets | *weirv1.Decay | *weirv1.SmoothBursty | *weirv1.WarmingUp | *weirv1.Cycle |
		*weirv1.LegacyBucket | *weirv1.Concurrency
}

// NewLimit is a limit for the option Limits:
//
//	weir.NewLimit(&weirv1.TokenBucket{Capacity: 10, Count: 10, Period: durationpb.New(time.Minute)})
//
// It covers the whole key. Set Name, Depth and Shadow on the result.
func NewLimit[A Algorithm](algorithm A) *weirv1.Limit {
	limit := &weirv1.Limit{}
	message := algorithm.ProtoReflect()
	fields := limit.ProtoReflect().Descriptor().Oneofs().ByName("algorithm").Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); field.Message() == message.Descriptor() && message.IsValid() {
			limit.ProtoReflect().Set(field, protoreflect.ValueOfMessage(message))
		}
	}
	return limit
}
