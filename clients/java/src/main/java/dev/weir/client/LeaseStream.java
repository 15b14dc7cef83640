package dev.weir.client;

import io.grpc.CallOptions;
import io.grpc.ClientInterceptors;
import io.grpc.Deadline;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.LeaseRequest;
import weir.v1.Weir.LeaseResponse;

/**
 * Carries the requests of all leases over one stream, which answers in order. A stream that ends, or does not answer a
 * request in time, is replaced by another, on which each unanswered request is retried once.
 *
 * <p>All methods except {@link #send} run on the timer's thread.
 */
final class LeaseStream {
    /** The pause after the service rejected the stream. */
    private static final Duration PAUSE = Duration.ofSeconds(1);

    private final Connection connection;
    private final ScheduledExecutorService timer;
    private Live live;
    private boolean isClosed;
    private long rejectedUntilNs = System.nanoTime();

    LeaseStream(Connection connection, ScheduledExecutorService timer) {
        this.connection = connection;
        this.timer = timer;
    }

    /** A request in flight. */
    private static final class Call {
        final LeaseRequest request;
        final Deadline deadline;
        final CompletableFuture<Optional<LeaseResponse>> answer = new CompletableFuture<>();
        /** The error of the first attempt, if it is retried; otherwise null. */
        WeirException failed;
        /** Ends a stream that does not answer in time. Null before the request is sent. */
        Future<?> timeout;

        Call(LeaseRequest request, Deadline deadline) {
            this.request = request;
            this.deadline = deadline;
        }

        void fail(WeirException error) {
            answer.completeExceptionally(error);
        }

        void late() {
            // The first attempt's error says more than that no time was left for a retry.
            fail(failed != null
                    ? failed
                    : new WeirException(WeirException.Kind.DEADLINE_EXCEEDED, "no answer on the stream of leases in time"));
        }
    }

    /** Sends a request. The answer is empty if the service rejects the stream, and has carried out none of its requests. */
    CompletableFuture<Optional<LeaseResponse>> send(LeaseRequest request, Deadline deadline) {
        var call = new Call(request, deadline);
        timer.execute(() -> transmit(call));
        // A timer that is shut down drops the call, so the future needs its own timeout.
        return call.answer.orTimeout(deadline.timeRemaining(TimeUnit.MILLISECONDS) + PAUSE.toMillis(), TimeUnit.MILLISECONDS);
    }

    private void transmit(Call call) {
        if (isClosed) {
            call.fail(new WeirException(WeirException.Kind.UNAVAILABLE, "the client is closed"));
        } else if (call.deadline.isExpired()) {
            call.late();
        } else if (System.nanoTime() - rejectedUntilNs < 0) {
            call.answer.complete(Optional.empty());
        } else {
            if (live == null) {
                live = new Live(call.failed != null);
            }
            var used = live;
            used.sent.add(call);
            used.requests.onNext(call.request);
            call.timeout = timer.schedule(
                    () -> expire(used, call), call.deadline.timeRemaining(TimeUnit.NANOSECONDS), TimeUnit.NANOSECONDS);
        }
    }

    private void expire(Live used, Call call) {
        if (live == used && used.sent.contains(call)) {
            end(used, new WeirException(WeirException.Kind.UNAVAILABLE, "the stream of leases does not answer"), false);
            used.requests.cancel("the stream does not answer", null);
        }
    }

    private void answered(Live used, LeaseResponse response) {
        if (live != used) {
            return;
        }
        var call = used.sent.remove();
        call.timeout.cancel(false);
        if (response.getDecision().hasError()) {
            var error = response.getDecision().getError();
            var field = error.getField().startsWith("check.") ? error.getField().substring("check.".length()) : error.getField();
            call.fail(WeirException.of(error.toBuilder().setField(field).build()));
        } else {
            call.answer.complete(Optional.of(response));
        }
    }

    /** Retries the requests that this stream has not answered, or completes them with this error. */
    private void end(Live used, WeirException error, boolean isRejected) {
        if (live != used) {
            return;
        }
        live = null;
        if (isRejected) {
            rejectedUntilNs = System.nanoTime() + PAUSE.toNanos();
        }
        for (var call : used.sent) {
            call.timeout.cancel(false);
            if (isRejected) {
                call.answer.complete(Optional.empty());
            } else if (call.failed != null && !call.deadline.isExpired()) {
                call.fail(error);
            } else {
                if (!call.deadline.isExpired()) {
                    call.failed = error;
                }
                transmit(call);
            }
        }
    }

    /** Ends all requests. */
    void close() {
        isClosed = true;
        if (live != null) {
            var used = live;
            end(used, new WeirException(WeirException.Kind.UNAVAILABLE, "the client is closed"), false);
            used.requests.cancel("the client is closed", null);
        }
    }

    /** One stream. gRPC's threads call its methods. */
    private final class Live implements ClientResponseObserver<LeaseRequest, LeaseResponse> {
        final Deque<Call> sent = new ArrayDeque<>();
        private final AtomicReference<Metadata> headers = new AtomicReference<>();
        private ClientCallStreamObserver<LeaseRequest> requests;

        Live(boolean waitsForReady) {
            var options = waitsForReady ? CallOptions.DEFAULT.withWaitForReady() : CallOptions.DEFAULT;
            var capture = MetadataUtils.newCaptureMetadataInterceptor(headers, new AtomicReference<>());
            var channel = ClientInterceptors.intercept(connection.channel(), capture);
            ClientCalls.asyncBidiStreamingCall(channel.newCall(RateLimiterGrpc.getLeaseMethod(), options), this);
        }

        @Override
        public void beforeStart(ClientCallStreamObserver<LeaseRequest> observer) {
            requests = observer;
        }

        @Override
        public void onNext(LeaseResponse response) {
            timer.execute(() -> answered(this, response));
        }

        @Override
        public void onError(Throwable failure) {
            var error = WeirException.of(failure);
            // A stream that the service rejects has no headers.
            var isRejected = headers.get() == null && !Caller.isLost(error) && error.kind() != WeirException.Kind.CANCELLED;
            timer.execute(() -> end(this, error, isRejected));
        }

        @Override
        public void onCompleted() {
            var ended = Status.UNAVAILABLE.withDescription("the service has ended the stream of leases");
            timer.execute(() -> end(this, WeirException.of(ended.asRuntimeException()), false));
        }
    }
}
