package dev.weir.client.grpc;

import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.rpc.Code;
import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import dev.weir.client.Check;
import dev.weir.client.Guard;
import dev.weir.client.Verdict;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.protobuf.StatusProto;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.BiFunction;

/**
 * Checks each call when it starts. Refused calls fail with RESOURCE_EXHAUSTED, {@code retry-after} and google.rpc.RetryInfo
 * in the trailers; with UNAVAILABLE if the service does not decide and the guard fails closed. The headers have
 * {@code ratelimit} and {@code ratelimit-policy}.
 *
 * <p>A check, and its wait with {@link Check#withMaxWait}, block the server's thread, so do not use it with
 * {@code directExecutor}. A call that ends while it waits is not handled.
 */
public final class GuardInterceptor implements ServerInterceptor {
    private static final String RETRY_AFTER = "Retry-After";

    private final Guard guard;
    private final BiFunction<ServerCall<?, ?>, Metadata, Optional<Check>> check;

    /**
     * Guards calls.
     *
     * @param guard decides
     * @param check the check of a call with these headers; empty: the call is not limited. {@link CallKeys} has common
     *     segments of keys.
     */
    public GuardInterceptor(Guard guard, BiFunction<ServerCall<?, ?>, Metadata, Optional<Check>> check) {
        this.guard = Objects.requireNonNull(guard);
        this.check = Objects.requireNonNull(check);
    }

    @Override
    public <Q, A> ServerCall.Listener<Q> interceptCall(
            ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
        var checked = check.apply(call, headers);
        if (checked.isEmpty()) {
            return next.startCall(call, headers);
        }
        var verdict = guard.judge(checked.get());
        if (!verdict.passes()) {
            refuse(call, verdict);
            return new ServerCall.Listener<>() {};
        }
        return next.startCall(withHeaders(call, verdict.headers()), headers);
    }

    private static <Q, A> ServerCall<Q, A> withHeaders(ServerCall<Q, A> call, Map<String, String> added) {
        return new SimpleForwardingServerCall<>(call) {
            @Override
            public void sendHeaders(Metadata headers) {
                added.forEach((name, value) -> headers.put(key(name), value));
                super.sendHeaders(headers);
            }
        };
    }

    private static void refuse(ServerCall<?, ?> call, Verdict verdict) {
        var undecided = verdict.decision().isEmpty();
        var status = Status.newBuilder()
                .setCode((undecided ? Code.UNAVAILABLE : Code.RESOURCE_EXHAUSTED).getNumber())
                .setMessage(undecided ? "no decision of the rate limiter" : "rate limit exceeded");
        Optional.ofNullable(verdict.headers().get(RETRY_AFTER)).map(Long::valueOf).ifPresent(seconds -> status.addDetails(
                Any.pack(RetryInfo.newBuilder().setRetryDelay(Duration.newBuilder().setSeconds(seconds)).build())));
        var failure = StatusProto.toStatusRuntimeException(status.build());
        var trailers = Objects.requireNonNullElseGet(failure.getTrailers(), Metadata::new);
        verdict.headers().forEach((name, value) -> trailers.put(key(name), value));
        call.close(failure.getStatus(), trailers);
    }

    private static Metadata.Key<String> key(String name) {
        return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
    }
}
