package dev.weir.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
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

/** The channel to the service, and calls over it as futures. These complete on gRPC's threads, which must not block. */
final class Connection implements AutoCloseable {
    /** gRPC's own pauses grow to two minutes, for which nothing would be limited after an outage. */
    private static final Duration RECONNECT = Duration.ofSeconds(1);

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
                // Each replica gets its share of the calls.
                .defaultLoadBalancingPolicy("round_robin")
                // A retry policy in a DNS record could charge twice. gRPC's transparent retries, of calls that certainly were not
                // processed, stay on.
                .disableServiceConfigLookUp()
                // A dead connection is noticed without a call, and an idle one is kept.
                .keepAliveTime(30, TimeUnit.SECONDS)
                .keepAliveTimeout(5, TimeUnit.SECONDS)
                .keepAliveWithoutCalls(true)
                .idleTimeout(365, TimeUnit.DAYS)
                .directExecutor();
        if (target.startsWith("unix:")) {
            // A path is not a valid authority of HTTP/2.
            builder.overrideAuthority("localhost");
        }
        channel = builder.build();
        calls = token.<Channel>map(source -> ClientInterceptors.intercept(channel, new TokenInterceptor(source)))
                .orElse(channel);
        // Connects now, so that the first call need not wait for it.
        channel.getState(true);
        timer.scheduleWithFixedDelay(
                channel::resetConnectBackoff, RECONNECT.toMillis(), RECONNECT.toMillis(), TimeUnit.MILLISECONDS);
    }

    Channel channel() {
        return calls;
    }

    /** What calls carry now; empty without a token. */
    String token() {
        return token.map(TokenSource::current).orElse("");
    }

    <Q, A> CompletableFuture<A> call(MethodDescriptor<Q, A> method, Q request, CallOptions options) {
        var answer = new CompletableFuture<A>();
        ClientCalls.asyncUnaryCall(calls.newCall(method, options), request, new StreamObserver<A>() {
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
        });
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
