package weir

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/OWNER/weir/clients/go/weirv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The kinds of errors, for errors.Is. Every error of the service is an *Error of one of them, or of none for codes that are not
// expected; a cancelled context is context.Canceled.
var (
	// ErrInvalidRequest means that the request is malformed: Error.Field names what.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrUnauthenticated means that the token or the certificate is missing or not valid.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrPermissionDenied means that the client lacks the role, or that the policy forbids limits of the request's own.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrNotFound means that no policy defines the domain, or that a reservation has ended.
	ErrNotFound = errors.New("not found")
	// ErrFailedPrecondition means that a limit on the path cannot be reserved, or can only be reserved.
	ErrFailedPrecondition = errors.New("failed precondition")
	// ErrUnavailable means that the service cannot be reached, shuts down, or has no store to decide by.
	ErrUnavailable = errors.New("unavailable")
	// ErrDeadlineExceeded means that the service did not answer in time. Such an error is context.DeadlineExceeded too.
	ErrDeadlineExceeded = errors.New("deadline exceeded")
	// ErrOverloaded means that the service sheds load: Error.RetryAfter says when to come back.
	ErrOverloaded = errors.New("overloaded")
	// ErrInternal means a fault of the service.
	ErrInternal = errors.New("internal error")
	// ErrCircuitOpen means that the call was not sent, because calls before it met an outage.
	ErrCircuitOpen = errors.New("circuit breaker open")
)

var kinds = map[codes.Code]error{
	codes.Canceled:           context.Canceled,
	codes.InvalidArgument:    ErrInvalidRequest,
	codes.Unauthenticated:    ErrUnauthenticated,
	codes.PermissionDenied:   ErrPermissionDenied,
	codes.NotFound:           ErrNotFound,
	codes.FailedPrecondition: ErrFailedPrecondition,
	codes.Unavailable:        ErrUnavailable,
	codes.DeadlineExceeded:   ErrDeadlineExceeded,
	codes.ResourceExhausted:  ErrOverloaded,
	codes.Internal:           ErrInternal,
}

// Error says why the service did not decide. errors.Is compares it with the kinds above.
type Error struct {
	// Code is the status of the gRPC call, UNAVAILABLE where the circuit breaker is open.
	Code codes.Code
	// Message is the service's, one sentence.
	Message string
	// Field is the invalid field, as in limit_spec.limits[0].gcra.count, where the service names one.
	Field string
	// RetryAfter is when to come back, where the service says so.
	RetryAfter time.Duration

	kind error
}

// Error is kind, field and message.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("weir: ")
	b.WriteString(e.reason())
	for _, part := range []string{e.Field, e.Message} {
		if part != "" {
			b.WriteString(": ")
			b.WriteString(part)
		}
	}
	return b.String()
}

// reason is the kind, or the code where that is not expected.
func (e *Error) reason() string {
	if e.kind == nil {
		return e.Code.String()
	}
	return e.kind.Error()
}

// Is compares with a kind.
func (e *Error) Is(target error) bool {
	return target == e.kind || target == context.DeadlineExceeded && e.kind == ErrDeadlineExceeded
}

// Outage reports whether the error passes by itself: OnFailure applies to these alone. All others repeat until a configuration
// or the code is corrected.
func (e *Error) Outage() bool {
	switch e.Code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal:
		return true
	default:
		return false
	}
}

func circuitOpen(pause time.Duration) *Error {
	return &Error{
		Code:       codes.Unavailable,
		Message:    "calls fail at once while the service is away",
		RetryAfter: pause,
		kind:       ErrCircuitOpen,
	}
}

// asError is the error of a failed call, with the details that the service attaches.
func asError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok {
		return e
	}
	s := status.Convert(err)
	if s.Code() == codes.Internal && strings.HasPrefix(s.Message(), "grpc: error while marshaling") {
		// Text that is not UTF-8: a fault of the request, which must not open the circuit breaker.
		s = status.New(codes.InvalidArgument, s.Message())
	}
	e := &Error{Code: s.Code(), Message: s.Message(), kind: kinds[s.Code()]}
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				e.Field = violation.GetField()
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = detail.GetRetryDelay().AsDuration()
		}
	}
	return e
}

// entryError is the error of one check of a batch or a stream.
func entryError(e *weirv1.Error) *Error {
	code := codes.Code(e.GetCode())
	return &Error{Code: code, Message: e.GetMessage(), Field: e.GetField(), kind: kinds[code]}
}
