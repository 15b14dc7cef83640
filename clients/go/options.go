package weir

import (
	"cmp"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
)

// Option configures a Client.
type Option func(*config)

type config struct {
	tls        *TLS
	token      string
	tokenFile  string
	deadline   time.Duration
	onFailure  FailureMode
	retries    int
	breaker    breaker
	inFlight   int
	lease      bool
	logger     *slog.Logger
	meters     metric.MeterProvider
	tracers    trace.TracerProvider
	dialOption []grpc.DialOption
}

func defaults() config {
	return config{
		// A decision takes less than a millisecond on a healthy network.
		deadline: 50 * time.Millisecond,
		retries:  1,
		breaker:  breaker{maxFailures: 5, pause: time.Second},
		logger:   slog.Default(),
		meters:   otel.GetMeterProvider(),
		tracers:  otel.GetTracerProvider(),
	}
}

// TLS names PEM files. The certificate is read again for each connection.
type TLS struct {
	// CA has the certificates that sign the service's. Empty: those of the system.
	CA string
	// Cert and Key are the client certificate, for mTLS. Empty: none.
	Cert, Key string
	// ServerName is the name in the service's certificate, where it differs from the target's.
	ServerName string
}

// WithTLS turns on TLS.
func WithTLS(files TLS) Option {
	return func(c *config) { c.tls = &files }
}

// WithToken sends a token with each call. Use TLS with it, except on loopback.
func WithToken(token string) Option {
	return func(c *config) { c.token = token }
}

// WithTokenFile sends the token that a file has. The file is read again at a call, at most once a second, so a new token is used
// without a restart. While it cannot be read, or has no token of printable ASCII, the last token is sent, which is logged.
func WithTokenFile(path string) Option {
	return func(c *config) { c.tokenFile = path }
}

// WithDeadline bounds each call, its retries included. Default 50 ms. An earlier deadline of the context holds.
func WithDeadline(deadline time.Duration) Option {
	return func(c *config) { c.deadline = deadline }
}

// WithOnFailure says what Check answers during an outage. Default ReturnError.
func WithOnFailure(mode FailureMode) Option {
	return func(c *config) { c.onFailure = mode }
}

// WithRetries is how often a call is repeated that found no service (UNAVAILABLE) and can be repeated without harm. Default 1; 0
// turns retries off.
//
// For that, a check that charges or gives back has a request_id, whose answer the service remembers: it takes the place of a key in its memory, and a
// leased limit is not decided by the lease. 0 avoids both.
func WithRetries(retries int) Option {
	return func(c *config) { c.retries = retries }
}

// WithBreaker opens the circuit breaker after so many outages in a row, for so long. Default 5 and 1 s; 0 failures turn it off.
func WithBreaker(failures int, pause time.Duration) Option {
	return func(c *config) { c.breaker = breaker{maxFailures: failures, pause: pause} }
}

// WithCoalescing sends concurrent checks over one stream to one replica, at most so many at a time (0: 1,024), for more checks a second
// at less CPU. Further checks, and all while the stream is being opened, are calls of their own.
func WithCoalescing(maxInFlight int) Option {
	return func(c *config) { c.inFlight = cmp.Or(maxInFlight, 1024) }
}

// WithLease lets checks of hot keys be decided in this process, in less than a microsecond, by units that the client takes in advance
// and gives back at Close. It needs limits whose policy says lease; checks of others, and those that no lease can decide, are as
// without. UseLease replaces it for a check.
func WithLease() Option {
	return func(c *config) { c.lease = true }
}

// WithLogger logs failures of Guard and of the token file. Default slog.Default().
func WithLogger(logger *slog.Logger) Option {
	return func(c *config) { c.logger = logger }
}

// WithMeterProvider replaces OpenTelemetry's global provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(c *config) { c.meters = provider }
}

// WithTracerProvider replaces OpenTelemetry's global provider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(c *config) { c.tracers = provider }
}

// WithDialOptions adds options of gRPC, such as interceptors.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(c *config) { c.dialOption = append(c.dialOption, options...) }
}
