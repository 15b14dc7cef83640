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

// TLS names PEM files. The client certificate is read again for each connection.
type TLS struct {
	// CA has the CA certificates that verify the service. Empty: the system's.
	CA string
	// Cert and Key are the client certificate and its private key, for mTLS. Empty: none.
	Cert, Key string
	// ServerName is the name in the service's certificate, if it differs from the target's host.
	ServerName string
}

// WithTLS turns on TLS.
func WithTLS(files TLS) Option {
	return func(c *config) { c.tls = &files }
}

// WithToken sends a bearer token with each call. Use TLS with it, except on loopback.
func WithToken(token string) Option {
	return func(c *config) { c.token = token }
}

// WithTokenFile sends the bearer token in a file. The file is read again at a call, at most once a second, so a new token is used without a
// restart. If it cannot be read, or has no token of printable ASCII, a warning is logged, and the last token is sent.
func WithTokenFile(path string) Option {
	return func(c *config) { c.tokenFile = path }
}

// WithDeadline bounds each call, retries included. Default 50 ms. An earlier deadline of the context takes precedence.
func WithDeadline(deadline time.Duration) Option {
	return func(c *config) { c.deadline = deadline }
}

// WithOnFailure decides checks during an outage: Allow (fail open) or Deny (fail closed). Default ReturnError.
func WithOnFailure(mode FailureMode) Option {
	return func(c *config) { c.onFailure = mode }
}

// WithRetries sets how often an idempotent call is retried after UNAVAILABLE. Default 1; 0 turns retries off.
//
// With retries a check that charges or refunds carries a request_id, whose answer the service remembers: that takes memory like a key does,
// and a replica does not decide such a check from units that it leases. 0 avoids both.
func WithRetries(retries int) Option {
	return func(c *config) { c.retries = retries }
}

// WithBreaker opens the circuit breaker for the pause after that many outages in a row. Default 5 and 1 s; 0 failures turn it off.
func WithBreaker(failures int, pause time.Duration) Option {
	return func(c *config) { c.breaker = breaker{maxFailures: failures, pause: pause} }
}

// WithCoalescing sends concurrent checks over one stream to one replica, at most maxInFlight at a time (0: 1,024): more checks per second
// for less CPU. Further checks, and all checks while the stream is being opened, are unary calls.
func WithCoalescing(maxInFlight int) Option {
	return func(c *config) { c.inFlight = cmp.Or(maxInFlight, 1024) }
}

// WithLease decides checks of hot keys in this process, in less than a microsecond, with units that the client leases in advance and
// returns at Close. It needs limits whose policy says lease. Checks of other keys, and those that a lease cannot decide, are ordinary
// checks. UseLease overrides it for one check.
func WithLease() Option {
	return func(c *config) { c.lease = true }
}

// WithLogger sets the logger for failures of Guard and of the token file. Default slog.Default().
func WithLogger(logger *slog.Logger) Option {
	return func(c *config) { c.logger = logger }
}

// WithMeterProvider replaces OpenTelemetry's global meter provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(c *config) { c.meters = provider }
}

// WithTracerProvider replaces OpenTelemetry's global tracer provider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(c *config) { c.tracers = provider }
}

// WithDialOptions adds gRPC dial options, such as interceptors.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(c *config) { c.dialOption = append(c.dialOption, options...) }
}
