package dev.weir.client.grpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.rpc.RetryInfo;
import dev.weir.client.BreakerState;
import dev.weir.client.Check;
import dev.weir.client.Guard;
import dev.weir.client.Limit;
import dev.weir.client.Wait;
import dev.weir.client.Weir;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.ResetRequest;
import weir.v1.Weir.ResetResponse;

class GuardInterceptorTest {
    @TempDir
    private Path directory;

    private Server server;
    private ManagedChannel channel;

    /** An example of any service. */
    private static final class Orders extends RateLimiterGrpc.RateLimiterImplBase {
        @Override
        public void reset(ResetRequest request, StreamObserver<ResetResponse> answer) {
            answer.onNext(ResetResponse.getDefaultInstance());
            answer.onCompleted();
        }
    }

    static Server serve(Guard guard) throws IOException {
        var interceptor = new GuardInterceptor(guard, (call, headers) -> {
            var user = CallKeys.header(headers, "x-user");
            return user.equals("health") ? Optional.empty() : Optional.of(Check.of("user", user, CallKeys.method(call)));
        });
        return Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                .addService(ServerInterceptors.intercept(new Orders(), interceptor))
                .build()
                .start();
    }

    @AfterEach
    void stop() {
        channel.shutdownNow();
        server.shutdownNow();
    }

    private void connect(Server served) {
        server = served;
        channel = Grpc.newChannelBuilder("127.0.0.1:" + server.getPort(), InsecureChannelCredentials.create()).build();
    }

    /** Makes a call as a user, and returns the headers of its answer. */
    private Metadata call(String user) {
        var sent = new Metadata();
        sent.put(key("x-user"), user);
        var headers = new AtomicReference<>(new Metadata());
        var trailers = new AtomicReference<>(new Metadata());
        RateLimiterGrpc.newBlockingStub(channel)
                .withInterceptors(
                        MetadataUtils.newAttachHeadersInterceptor(sent),
                        MetadataUtils.newCaptureMetadataInterceptor(headers, trailers))
                .reset(ResetRequest.getDefaultInstance());
        return headers.get();
    }

    private static Metadata.Key<String> key(String name) {
        return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
    }

    @Test
    void refusesWhatIsTooMuch() throws Exception {
        try (var limiter = Weir.start(directory); var weir = limiter.client().build()) {
            connect(serve(Guard.failingOpen(weir)));
            for (var left = 2; left >= 0; left--) {
                assertTrue(call("alex").get(key("ratelimit")).contains(";r=" + left));
            }
            var refused = assertThrows(StatusRuntimeException.class, () -> call("alex"));
            assertEquals(Status.Code.RESOURCE_EXHAUSTED, refused.getStatus().getCode());
            var retryAfter = Long.parseLong(refused.getTrailers().get(key("retry-after")));
            assertTrue(retryAfter > 86_000);
            var detail = StatusProto.fromThrowable(refused).getDetails(0).unpack(RetryInfo.class);
            assertEquals(retryAfter, detail.getRetryDelay().getSeconds());
            assertTrue(refused.getTrailers().get(key("ratelimit-policy")).endsWith(";q=3"));
            call("health");
        }
    }

    /** Ends the context of each call, as its client does by cancelling it, or by a deadline that is over when it arrives. */
    private record Ending(boolean byDeadline, ScheduledExecutorService timer) implements ServerInterceptor {
        @Override
        public <Q, A> ServerCall.Listener<Q> interceptCall(ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
            var context = byDeadline
                    ? Context.current().withDeadlineAfter(0, TimeUnit.NANOSECONDS, timer)
                    : Context.current().withCancellation();
            context.cancel(null);
            return Contexts.interceptCall(context, call, headers, next);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void theClientOfACallCannotEndItsCheck(boolean byDeadline) throws Exception {
        var timer = Executors.newSingleThreadScheduledExecutor();
        try (var limiter = Weir.start(directory);
                var weir = limiter.client().retries(0).breaker(1, Duration.ofHours(1)).build()) {
            var interceptor = new GuardInterceptor(
                    Guard.failingOpen(weir), (call, headers) -> Optional.of(Check.of("user", "alex", "trade")));
            connect(Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                    .addService(ServerInterceptors.intercept(new Orders(), interceptor, new Ending(byDeadline, timer)))
                    .build()
                    .start());
            assertTrue(String.valueOf(call("alex").get(key("ratelimit"))).contains(";r=2"), "it is decided");
            assertEquals(BreakerState.CLOSED, weir.breakerState());
        } finally {
            timer.shutdownNow();
        }
    }

    @Test
    void aCallThatEndsWhileItWaitsIsNotHandled() throws Exception {
        var handled = new AtomicInteger();
        var orders = new RateLimiterGrpc.RateLimiterImplBase() {
            @Override
            public void reset(ResetRequest request, StreamObserver<ResetResponse> answer) {
                handled.incrementAndGet();
                answer.onNext(ResetResponse.getDefaultInstance());
                answer.onCompleted();
            }
        };
        var threads = new ThreadPoolExecutor(4, 4, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>());
        try (var limiter = Weir.start(directory); var weir = limiter.client().build()) {
            var queued = Check.of("queue")
                    .withLimits(Limit.leakyQueue(1, Duration.ofHours(1), 5))
                    .withMaxWait(Duration.ofHours(1));
            var interceptor = new GuardInterceptor(Guard.failingOpen(weir), (call, headers) -> Optional.of(queued));
            connect(Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                    .executor(threads)
                    .addService(ServerInterceptors.intercept(orders, interceptor))
                    .build()
                    .start());
            call("alex");
            var hasty = RateLimiterGrpc.newBlockingStub(channel).withDeadlineAfter(200, TimeUnit.MILLISECONDS);
            var late = assertThrows(StatusRuntimeException.class, () -> hasty.reset(ResetRequest.getDefaultInstance()));
            assertEquals(Status.Code.DEADLINE_EXCEEDED, late.getStatus().getCode());
            // No thread waits any more.
            Wait.until(Duration.ofSeconds(20), () -> threads.getActiveCount() == 0);
            assertEquals(1, handled.get());
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void withoutADecisionCallsPassOrFailAsTheGuardSays() throws Exception {
        try (var nowhere = Weir.nowhere().build()) {
            connect(serve(Guard.failingClosed(nowhere)));
            var refused = assertThrows(StatusRuntimeException.class, () -> call("alex"));
            assertEquals(Status.Code.UNAVAILABLE, refused.getStatus().getCode());
            assertEquals("1", refused.getTrailers().get(key("retry-after")));
            stop();
            connect(serve(Guard.failingOpen(nowhere)));
            call("alex");
        }
    }

    @Test
    void withoutACertificateTheCallerIsAnonymous() throws Exception {
        var principal = new AtomicReference<String>();
        try (var nowhere = Weir.nowhere().build()) {
            var interceptor = new GuardInterceptor(Guard.failingOpen(nowhere), (call, headers) -> {
                principal.set(CallKeys.principal(call) + " " + CallKeys.header(headers, "x-missing"));
                return Optional.empty();
            });
            connect(Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                    .addService(ServerInterceptors.intercept(new Orders(), interceptor))
                    .build()
                    .start());
            call("alex");
        }
        assertEquals("anonymous anonymous", principal.get());
    }
}
