package dev.weir.client;

import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Executor;

/** The settings of a {@link WeirClient}. */
public final class WeirClientBuilder {
    final String target;
    ChannelCredentials credentials = InsecureChannelCredentials.create();
    Optional<TokenSource> token = Optional.empty();
    Duration deadline = Duration.ofMillis(50);
    OnFailure onFailure = OnFailure.ERROR;
    int retries = 1;
    int breakerFailures = 5;
    Duration breakerPause = Duration.ofSeconds(1);
    int maxCoalesced;
    boolean lease;
    Optional<Executor> executor = Optional.empty();
    Telemetry telemetry = Telemetry.none();

    WeirClientBuilder(String target) {
        this.target = Objects.requireNonNull(target);
    }

    /**
     * Uses TLS. Default: none.
     *
     * @param tls certificates
     * @return this
     */
    public WeirClientBuilder tls(Tls tls) {
        credentials = tls.credentials();
        return this;
    }

    /**
     * Sends a bearer token with each call. Use TLS with it, except on loopback.
     *
     * @param token the token, printable ASCII
     * @return this
     */
    public WeirClientBuilder token(String token) {
        this.token = Optional.of(TokenSource.fixed(Objects.requireNonNull(token)));
        return this;
    }

    /**
     * Sends the bearer token in a file with each call. The file is read again at a call, at most once a second, so a new
     * token is used without a restart. If it cannot be read, or has no token of printable ASCII, a warning is logged, and
     * the last token is sent.
     *
     * @param file the file
     * @return this
     */
    public WeirClientBuilder tokenFile(Path file) {
        token = Optional.of(TokenSource.file(file));
        return this;
    }

    /**
     * Bounds each call, retries included. Default: 50 ms.
     *
     * @param timeout above 0; at most a day counts
     * @return this
     */
    public WeirClientBuilder deadline(Duration timeout) {
        deadline = Caller.bounded(timeout);
        return this;
    }

    /**
     * Sets the result of checks that the service does not decide, in an outage. Default: {@link OnFailure#ERROR}.
     *
     * @param action the result
     * @return this
     */
    public WeirClientBuilder onFailure(OnFailure action) {
        onFailure = Objects.requireNonNull(action);
        return this;
    }

    /**
     * Sets how often an idempotent call is retried after UNAVAILABLE. A retry waits for a connection until the deadline. With
     * retries a check that charges or refunds carries a request id, whose answer the service remembers. Default: 1; 0 turns
     * retries off.
     *
     * @param times 0 or above
     * @return this
     */
    public WeirClientBuilder retries(int times) {
        if (times < 0) {
            throw new IllegalArgumentException("retries must not be negative, but are " + times);
        }
        retries = times;
        return this;
    }

    /**
     * Opens the circuit breaker after that many outages in a row: calls then fail immediately, until a probe succeeds.
     * Default: 5 and 1 s.
     *
     * @param failures outages in a row; 0: never
     * @param pause the time for which calls fail immediately, before one probes; at most a day counts
     * @return this
     */
    public WeirClientBuilder breaker(int failures, Duration pause) {
        if (failures < 0) {
            throw new IllegalArgumentException("failures must not be negative, but are " + failures);
        }
        breakerFailures = failures;
        breakerPause = Caller.bounded(pause);
        return this;
    }

    /**
     * Sends the checks of all threads over one stream to one replica, with at most 1,024 in flight: more checks per second
     * for less CPU. Further checks are unary calls. Default: off.
     *
     * @return this
     */
    public WeirClientBuilder coalesce() {
        return coalesce(1024);
    }

    /**
     * As {@link #coalesce()}, with another maximum.
     *
     * @param maxInFlight checks in flight on the stream; 0: off
     * @return this
     */
    public WeirClientBuilder coalesce(int maxInFlight) {
        if (maxInFlight < 0) {
            throw new IllegalArgumentException("maxInFlight must not be negative, but is " + maxInFlight);
        }
        maxCoalesced = maxInFlight;
        return this;
    }

    /**
     * Decides checks of hot keys in this process, in less than a microsecond, with units that the client leases in advance
     * and returns when it is closed. It needs limits whose policy says {@code lease}. Checks of other keys, and those that a
     * lease cannot decide, are ordinary checks. {@link Check#withLease} overrides it for one check. Default: off.
     *
     * @return this
     */
    public WeirClientBuilder lease() {
        lease = true;
        return this;
    }

    /**
     * Sets the executor on which the futures of asynchronous calls complete. Default: a pool of the client's own, with a
     * thread for each core, at least 2.
     *
     * @param executor the executor
     * @return this
     */
    public WeirClientBuilder executor(Executor executor) {
        this.executor = Optional.of(executor);
        return this;
    }

    /**
     * Records metrics and traces. Default: none.
     *
     * @param telemetry observes every call with checks
     * @return this
     */
    public WeirClientBuilder telemetry(Telemetry telemetry) {
        this.telemetry = Objects.requireNonNull(telemetry);
        return this;
    }

    /**
     * Creates the client, which connects without waiting for the connection.
     *
     * @return the client
     * @throws IllegalArgumentException if the target is malformed
     */
    public WeirClient build() {
        return new WeirClient(this);
    }
}
