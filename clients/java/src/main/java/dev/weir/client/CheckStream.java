package dev.weir.client;

import io.grpc.CallOptions;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.Deadline;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.CheckResponse;

/**
 * Sends the checks of all threads over one stream, which answers in order. The next check replaces a stream that has ended;
 * checks in flight on it are retried if they are idempotent.
 */
final class CheckStream {
    /**
     * One timer for all checks is much cheaper than one for each. A check that misses its deadline fails at most this much
     * later.
     */
    private static final long SWEEP_MS = 5;
    /** The pause after the service rejected the stream. */
    private static final Duration PAUSE = Duration.ofSeconds(1);
    /** A stream that is not accepted in this time is replaced. */
    private static final Duration ACCEPTED_WITHIN = Duration.ofSeconds(1);

    /** A check in flight. If it misses its deadline, it stays queued until its answer arrives. */
    private static final class Entry {
        final CheckRequest request;
        final Deadline deadline;
        final CompletableFuture<CheckResponse> answer = new CompletableFuture<>();
        int retriesLeft;
        /** The error of the attempt before, if this is a retry; otherwise null. */
        WeirException failed;

        Entry(CheckRequest request, Deadline deadline, int retries) {
            this.request = request;
            this.deadline = deadline;
            this.retriesLeft = retries;
        }
    }

    private final Connection connection;
    private final Caller caller;
    private final ScheduledExecutorService timer;
    private final int retries;
    private final int maxInFlight;
    private final long stallNs;

    // The fields below are guarded by this.
    private Live live;
    /** Streams opened with an old token, with checks in flight. */
    private final Set<Live> retired = new HashSet<>();
    private boolean sweeping;
    private long rejectedUntilNs = System.nanoTime();

    /** When a check misses its deadline, a stream without an answer for longer than {@code stall} is replaced. */
    CheckStream(
            Connection connection, Caller caller, ScheduledExecutorService timer, int retries, int maxInFlight, Duration stall) {
        this.connection = connection;
        this.caller = caller;
        this.timer = timer;
        this.retries = retries;
        this.maxInFlight = maxInFlight;
        this.stallNs = stall.toNanos();
    }

    /** Sends a check over the stream. Returns empty if it must be a unary call: the stream is full, or none is accepted. */
    Optional<CompletableFuture<CheckResponse>> send(CheckRequest request, Deadline deadline, boolean repeatable) {
        var entry = new Entry(request, deadline, repeatable ? retries : 0);
        return send(entry) ? Optional.of(entry.answer) : Optional.empty();
    }

    private synchronized boolean send(Entry entry) {
        if (live != null && !live.token.equals(connection.token())) {
            // The service may have revoked the old token. Checks in flight with it are still answered.
            var old = live;
            live = null;
            retired.add(old);
            old.requests.onCompleted();
        }
        if (live == null && System.nanoTime() - rejectedUntilNs >= 0) {
            open();
        }
        if (live == null || !live.isAccepted() || live.sent.size() >= maxInFlight) {
            return false;
        }
        live.send(entry);
        if (!sweeping) {
            sweeping = true;
            timer.schedule(this::sweep, SWEEP_MS, TimeUnit.MILLISECONDS);
        }
        return true;
    }

    private void open() {
        var opened = new Live();
        // On a closed channel the stream ends within its constructor.
        if (!opened.over) {
            live = opened;
            timer.schedule(() -> expire(opened), ACCEPTED_WITHIN.toMillis(), TimeUnit.MILLISECONDS);
        }
    }

    private void expire(Live opened) {
        synchronized (this) {
            if (live != opened || opened.isAccepted()) {
                return;
            }
            live = null;
        }
        opened.requests.cancel("the stream is not accepted", null);
    }

    private void sweep() {
        var expired = new ArrayList<Entry>();
        var stalled = new ArrayList<Live>();
        synchronized (this) {
            var streams = new ArrayList<>(retired);
            if (live != null) {
                streams.add(live);
            }
            sweeping = streams.stream().anyMatch(stream -> !stream.sent.isEmpty());
            if (!sweeping) {
                return;
            }
            for (var stream : streams) {
                var late = stream.sent.stream().filter(entry -> entry.deadline.isExpired()).toList();
                expired.addAll(late);
                if (!late.isEmpty() && stream.isSilent()) {
                    stalled.add(stream);
                    live = live == stream ? null : live;
                }
            }
            timer.schedule(this::sweep, SWEEP_MS, TimeUnit.MILLISECONDS);
        }
        for (var entry : expired) {
            // The first attempt's error says more than that no time was left for a retry.
            entry.answer.completeExceptionally(entry.failed != null
                    ? entry.failed
                    : new WeirException(WeirException.Kind.DEADLINE_EXCEEDED, "no answer on the stream before the deadline"));
        }
        stalled.forEach(stream -> stream.requests.cancel("the stream is stalled", null));
    }

    /** Retries a check, over another stream or else as a unary call, or completes it with the error. */
    private void lost(Entry entry, WeirException error) {
        var again = Caller.isLost(error) && !entry.answer.isDone() && entry.retriesLeft-- > 0 && !entry.deadline.isExpired();
        if (!again) {
            entry.answer.completeExceptionally(error);
            return;
        }
        entry.failed = error;
        if (!send(entry)) {
            caller.retry(RateLimiterGrpc.getCheckMethod(), entry.request, entry.deadline, entry.retriesLeft, error)
                    .whenComplete((answer, failure) -> {
                        if (failure == null) {
                            entry.answer.complete(answer);
                        } else {
                            entry.answer.completeExceptionally(Caller.error(failure));
                        }
                    });
        }
    }

    /** One stream. */
    private final class Live implements ClientResponseObserver<CheckRequest, CheckResponse> {
        final Deque<Entry> sent = new ArrayDeque<>();
        /** The token with which the stream is opened. Read before that. */
        final String token = connection.token();
        private final AtomicReference<Metadata> headers = new AtomicReference<>();
        private ClientCallStreamObserver<CheckRequest> requests;
        private long progressNs;
        private boolean over;

        Live() {
            // All checks share the stream, so it must not end with the server call whose check opens it.
            Context.ROOT.run(() -> {
                var capture = MetadataUtils.newCaptureMetadataInterceptor(headers, new AtomicReference<>());
                var channel = ClientInterceptors.intercept(connection.channel(), capture);
                var call = channel.newCall(RateLimiterGrpc.getCheckStreamMethod(), CallOptions.DEFAULT);
                ClientCalls.asyncBidiStreamingCall(call, this);
            });
        }

        /** A stream that the service rejects has no headers. */
        boolean isAccepted() {
            return headers.get() != null;
        }

        void send(Entry entry) {
            if (sent.isEmpty()) {
                progressNs = System.nanoTime();
            }
            sent.add(entry);
            requests.onNext(entry.request);
        }

        boolean isSilent() {
            return System.nanoTime() - progressNs > stallNs;
        }

        @Override
        public void beforeStart(ClientCallStreamObserver<CheckRequest> observer) {
            requests = observer;
        }

        @Override
        public void onNext(CheckResponse response) {
            Entry entry;
            synchronized (CheckStream.this) {
                entry = sent.remove();
                progressNs = System.nanoTime();
            }
            if (response.hasError()) {
                lost(entry, WeirException.of(response.getError()));
            } else {
                entry.answer.complete(response);
            }
        }

        @Override
        public void onError(Throwable failure) {
            // The client has cancelled the stream: retry as after UNAVAILABLE.
            var cancelled = Status.fromThrowable(failure).getCode() == Status.Code.CANCELLED;
            end(cancelled ? Status.UNAVAILABLE.withCause(failure).asRuntimeException() : failure);
        }

        @Override
        public void onCompleted() {
            end(Status.UNAVAILABLE.withDescription("the stream has ended").asRuntimeException());
        }

        /**
         * Ends the stream. Its status is never the answer to a check: the service ends a stream whose token is not valid any
         * more with UNAUTHENTICATED, while a retry may carry another token. So checks are retried as after UNAVAILABLE.
         */
        private void end(Throwable failure) {
            var error = WeirException.of(failure);
            var ended = Caller.isLost(error)
                    ? error
                    : new WeirException(WeirException.Kind.UNAVAILABLE, "the stream has ended: " + error.getMessage());
            List<Entry> unanswered;
            synchronized (CheckStream.this) {
                over = true;
                if (!isAccepted() && !Caller.isLost(error)) {
                    rejectedUntilNs = System.nanoTime() + PAUSE.toNanos();
                }
                if (live == this) {
                    live = null;
                }
                retired.remove(this);
                unanswered = new ArrayList<>(sent);
                sent.clear();
            }
            unanswered.forEach(entry -> lost(entry, ended));
        }
    }
}
