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

// The kinds of errors, for errors.Is. Every error of a call is an *Error of one of these kinds, or of none if its code is unexpected. A
// cancelled context is context.Canceled.
var (
	// ErrInvalidRequest means that the request is malformed. Error.Field names the invalid field.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrUnauthenticated means that the credentials (bearer token or client certificate) are missing or not valid.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrPermissionDenied means that the client lacks the role, or that the domain's policy forbids the option Limits.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrNotFound means that no policy defines the domain, or that a reservation is unknown, has expired or, for Extend, is settled.
	ErrNotFound = errors.New("not found")
	// ErrFailedPrecondition means that a limit on the path cannot be reserved, or can only be reserved.
	ErrFailedPrecondition = errors.New("failed precondition")
	// ErrUnavailable means that the service cannot be reached, shuts down, or cannot decide without its store.
	ErrUnavailable = errors.New("unavailable")
	// ErrDeadlineExceeded means that the service did not answer in time. Such an error is context.DeadlineExceeded too.
	ErrDeadlineExceeded = errors.New("deadline exceeded")
	// ErrOverloaded means that the service sheds load. Error.RetryAfter says when to retry.
	ErrOverloaded = errors.New("overloaded")
	// ErrInternal means an internal error of the service.
	ErrInternal = errors.New("internal error")
	// ErrCircuitOpen means that the call was not sent: the circuit breaker is open after earlier outages.
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
	// Code is the gRPC status code; UNAVAILABLE if the circuit breaker is open.
	Code codes.Code
	// Message is the service's, one sentence.
	Message string
	// Field is the invalid field, as in limit_spec.limits[0].gcra.count; empty if the service names none.
	Field string
	// RetryAfter is when to retry; 0 if the service does not say.
	RetryAfter time.Duration

	kind error
	// The request cannot be encoded, so the error says nothing about the service.
	unsent bool
}

// Error returns kind, field and message.
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

// reason returns the kind, or the code if that is unexpected.
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

// Outage reports whether the error is temporary. OnFailure applies only to these errors. All others repeat until the configuration or the
// code is corrected.
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

// asError returns the error of a failed call, with the details that the service attaches.
func asError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok {
		return e
	}
	s := status.Convert(err)
	unsent := s.Code() == codes.Internal && strings.HasPrefix(s.Message(), "grpc: error while marshaling")
	if unsent {
		// A string that is not UTF-8: the request is invalid, and this must neither open nor close the circuit breaker.
		s = status.New(codes.InvalidArgument, s.Message())
	}
	e := &Error{Code: s.Code(), Message: s.Message(), kind: kinds[s.Code()], unsent: unsent}
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

// entryError returns the error of one check of a batch or a stream.
func entryError(e *weirv1.Error) *Error {
	code := codes.Code(e.GetCode())
	return &Error{Code: code, Message: e.GetMessage(), Field: e.GetField(), kind: kinds[code]}
}
