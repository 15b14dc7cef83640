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
     * Sends a token with each call. Use TLS with it, except on loopback.
     *
     * @param token the token, printable ASCII
     * @return this
     */
    public WeirClientBuilder token(String token) {
        this.token = Optional.of(TokenSource.fixed(Objects.requireNonNull(token)));
        return this;
    }

    /**
     * Sends the token in a file with each call. The file is read again at most once a second, so the token may rotate.
     * While it has no token of printable ASCII, the last one is sent, and a warning is logged.
     *
     * @param file the file
     * @return this
     */
    public WeirClientBuilder tokenFile(Path file) {
        token = Optional.of(TokenSource.file(file));
        return this;
    }

    /**
     * How long a call may take, with its retries. Default: 50 ms.
     *
     * @param timeout above 0
     * @return this
     */
    public WeirClientBuilder deadline(Duration timeout) {
        deadline = Objects.requireNonNull(timeout);
        return this;
    }

    /**
     * What a check does in an outage. Default: {@link OnFailure#ERROR}.
     *
     * @param action what to do
     * @return this
     */
    public WeirClientBuilder onFailure(OnFailure action) {
        onFailure = Objects.requireNonNull(action);
        return this;
    }

    /**
     * How often a call is repeated, on another replica or connection, that was lost. Above 0, each check that charges gets
     * a request id, which the service remembers, so that it charges once. Default: 1.
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
     * When the circuit breaker opens: calls then fail at once, until one that probes the service succeeds. Default: after 5
     * outages in a row, for 1 s.
     *
     * @param failures outages in a row; 0: never
     * @param pause how long calls fail at once before one probes
     * @return this
     */
    public WeirClientBuilder breaker(int failures, Duration pause) {
        if (failures < 0) {
            throw new IllegalArgumentException("failures must not be negative, but are " + failures);
        }
        breakerFailures = failures;
        breakerPause = Objects.requireNonNull(pause);
        return this;
    }

    /**
     * Sends the checks of all threads over one stream, with at most 1,024 in flight; further ones are calls of their own.
     * More checks a second, but all go to one replica at a time. Default: off.
     *
     * @return this
     */
    public WeirClientBuilder coalesce() {
        return coalesce(1024);
    }

    /**
     * As {@link #coalesce()}, with another bound.
     *
     * @param maxInFlight checks in flight on the stream; 0: no stream
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
     * Decides checks of hot keys in this process, in less than a microsecond, by units that the client takes in advance and gives
     * back when it is closed. It needs limits whose policy says {@code lease}; checks of others, and those that no lease can
     * decide, are as without. {@link Check#withLease} replaces it for a check. Default: off.
     *
     * @return this
     */
    public WeirClientBuilder lease() {
        lease = true;
        return this;
    }

    /**
     * Where the futures of asynchronous calls complete. Default: a pool of the client's own, with a thread for each core.
     *
     * @param executor the executor
     * @return this
     */
    public WeirClientBuilder executor(Executor executor) {
        this.executor = Optional.of(executor);
        return this;
    }

    /**
     * Metrics and spans. Default: none.
     *
     * @param telemetry told of every call with checks
     * @return this
     */
    public WeirClientBuilder telemetry(Telemetry telemetry) {
        this.telemetry = Objects.requireNonNull(telemetry);
        return this;
    }

    /**
     * Starts to connect, without waiting for it.
     *
     * @return the client
     */
    public WeirClient build() {
        return new WeirClient(this);
    }
}
