package dev.weir.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.Deadline;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** The channel to the service, and unary calls as futures. These complete on gRPC's threads, which must not block. */
final class Connection implements AutoCloseable {
    /** gRPC's default backoff grows to two minutes: after an outage nothing would be limited for that long. */
    private static final Duration RECONNECT = Duration.ofSeconds(1);

    /** Larger than any answer: a batch of 1,000 checks with 16 levels of the longest names. */
    private static final int MAX_ANSWER_BYTES = 32 << 20;

    private final ManagedChannel channel;
    private final Channel calls;
    private final Optional<TokenSource> token;

    Connection(
            String target,
            ChannelCredentials credentials,
            Optional<TokenSource> token,
            ScheduledExecutorService timer) {
        this.token = token;
        var builder = Grpc.newChannelBuilder(AddressListProvider.target(target), credentials)
                // Balance over all replicas.
                .defaultLoadBalancingPolicy("round_robin")
                // A retry policy in DNS records could charge twice. gRPC's transparent retries, of calls that no server has
                // processed, stay on.
                .disableServiceConfigLookUp()
                .maxInboundMessageSize(MAX_ANSWER_BYTES)
                // Detect a dead connection without a call, and keep idle connections.
                .keepAliveTime(30, TimeUnit.SECONDS)
                .keepAliveTimeout(5, TimeUnit.SECONDS)
                .keepAliveWithoutCalls(true)
                .idleTimeout(365, TimeUnit.DAYS)
                .directExecutor();
        if (target.startsWith("unix:")) {
            // A path is not a valid :authority in HTTP/2.
            builder.overrideAuthority("localhost");
        }
        channel = builder.build();
        calls = token.<Channel>map(source -> ClientInterceptors.intercept(channel, new TokenInterceptor(source)))
                .orElse(channel);
        // Connect now, so that the first call does not wait for it.
        channel.getState(true);
        timer.scheduleWithFixedDelay(
                channel::resetConnectBackoff, RECONNECT.toMillis(), RECONNECT.toMillis(), TimeUnit.MILLISECONDS);
    }

    Channel channel() {
        return calls;
    }

    /** Returns the token that calls carry now; empty if there is none. */
    String token() {
        return token.map(TokenSource::current).orElse("");
    }

    <Q, A> CompletableFuture<A> call(MethodDescriptor<Q, A> method, Q request, CallOptions options) {
        var answer = new CompletableFuture<A>();
        var observer = new StreamObserver<A>() {
            private A received;

            @Override
            public void onNext(A message) {
                received = message;
            }

            @Override
            public void onError(Throwable failure) {
                answer.completeExceptionally(WeirException.of(failure));
            }

            @Override
            public void onCompleted() {
                answer.complete(received);
            }
        };
        // In a gRPC server the current context has the deadline and the cancellation of the server call. They must not bound
        // this call: users of the server could open the circuit breaker, or keep a slot from being released. A fork keeps only
        // the values, such as the parent of a trace.
        Context.current().fork().run(() -> ClientCalls.asyncUnaryCall(calls.newCall(method, options), request, observer));
        return answer;
    }

    static CallOptions until(Deadline deadline) {
        return CallOptions.DEFAULT.withDeadline(deadline);
    }

    @Override
    public void close() {
        channel.shutdownNow();
    }
}
