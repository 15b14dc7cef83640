package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CancelRequest;
import weir.v1.Weir.CancelResponse;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.CheckResponse;
import weir.v1.Weir.CommitRequest;
import weir.v1.Weir.CommitResponse;
import weir.v1.Weir.Error;
import weir.v1.Weir.ExtendRequest;
import weir.v1.Weir.ExtendResponse;
import weir.v1.Weir.LeaseRequest;
import weir.v1.Weir.LeaseResponse;
import weir.v1.Weir.ReserveRequest;
import weir.v1.Weir.ReserveResponse;

/** Streams of a stand-in service, which ends them at will. */
class StreamsTest {
    private static final Duration LONG = Duration.ofSeconds(20);
    private static final Check ALEX = Check.of("user", "alex");
    private static final CheckResponse ALLOWED = CheckResponse.newBuilder().setAllowed(true).build();
    private static final Context.Key<String> TOKEN = Context.key("token");

    /** Allows all checks. */
    private static class Service extends RateLimiterGrpc.RateLimiterImplBase {
        @Override
        public void check(CheckRequest request, StreamObserver<CheckResponse> answer) {
            answer.onNext(ALLOWED);
            answer.onCompleted();
        }
    }

    private record Requests<Q>(Runnable each, Runnable completed) implements StreamObserver<Q> {
        @Override
        public void onNext(Q request) {
            each.run();
        }

        @Override
        public void onError(Throwable cancelled) {}

        @Override
        public void onCompleted() {
            completed.run();
        }
    }

    /** Accepts streams of checks before it answers, as the real service does, and stores their tokens in the context. */
    private static final class Accepting implements ServerInterceptor {
        @Override
        public <Q, A> ServerCall.Listener<Q> interceptCall(ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
            var token = headers.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER));
            var context = Context.current().withValue(TOKEN, token);
            if (call.getMethodDescriptor() != RateLimiterGrpc.getCheckStreamMethod()) {
                return Contexts.interceptCall(context, call, headers, next);
            }
            call.sendHeaders(new Metadata());
            var accepted = new SimpleForwardingServerCall<>(call) {
                @Override
                public void sendHeaders(Metadata sent) {}
            };
            return Contexts.interceptCall(context, accepted, headers, next);
        }
    }

    private static Server serve(Service service) throws IOException {
        return Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                .addService(ServerInterceptors.intercept(service, new Accepting()))
                .build()
                .start();
    }

    private static WeirClientBuilder client(Server server) {
        return Weir.client("127.0.0.1:" + server.getPort());
    }

    @Test
    void checksOfAStreamThatEndsAreRepeated() throws Exception {
        var ended = new CompletableFuture<Void>();
        var server = serve(new Service() {
            @Override
            public StreamObserver<CheckRequest> checkStream(StreamObserver<CheckResponse> answers) {
                return new Requests<>(
                        () -> {
                            ended.complete(null);
                            answers.onError(Status.UNAUTHENTICATED.asRuntimeException());
                        },
                        () -> {});
            }
        });
        try (var weir = client(server).coalesce().build()) {
            Wait.until(LONG, () -> weir.check(ALEX).allowed() && ended.isDone());
        } finally {
            server.shutdownNow();
        }
    }

    @Test
    void aRetryWithoutAnAnswerFailsWithTheFirstError() throws Exception {
        var first = new AtomicBoolean(true);
        var server = serve(new Service() {
            @Override
            public StreamObserver<CheckRequest> checkStream(StreamObserver<CheckResponse> answers) {
                return new Requests<>(
                        () -> {
                            if (first.getAndSet(false)) {
                                answers.onNext(CheckResponse.newBuilder()
                                        .setError(Error.newBuilder().setCode(Status.Code.UNAVAILABLE.value()))
                                        .build());
                            }
                        },
                        () -> {});
            }
        });
        try (var weir = client(server).coalesce().build()) {
            var error = new AtomicReference<WeirException>();
            Wait.until(LONG, () -> {
                try {
                    weir.check(ALEX.withDeadline(Duration.ofSeconds(2)));
                } catch (WeirException failed) {
                    error.set(failed);
                }
                return !first.get();
            });
            assertEquals(WeirException.Kind.UNAVAILABLE, error.get().kind());
        } finally {
            server.shutdownNow();
        }
    }

    @Test
    void aStreamEndsWithItsToken(@TempDir Path directory) throws Exception {
        record Opened(
                String token, StreamObserver<CheckResponse> answers, AtomicInteger checks, CompletableFuture<Void> completed) {}
        var streams = new CopyOnWriteArrayList<Opened>();
        var server = serve(new Service() {
            @Override
            public StreamObserver<CheckRequest> checkStream(StreamObserver<CheckResponse> answers) {
                var opened = new Opened(TOKEN.get(), answers, new AtomicInteger(), new CompletableFuture<>());
                streams.add(opened);
                return new Requests<>(opened.checks::incrementAndGet, () -> opened.completed.complete(null));
            }
        });
        var file = Files.writeString(directory.resolve("token"), "first");
        try (var weir = client(server).coalesce().retries(0).tokenFile(file).build()) {
            var underWay = new ArrayList<CompletableFuture<Decision>>();
            Wait.until(LONG, () -> {
                underWay.add(weir.checkAsync(ALEX));
                return streams.stream().anyMatch(stream -> stream.checks.get() > 0);
            });
            Files.writeString(file, "second");
            Wait.until(LONG, () -> {
                weir.checkAsync(ALEX);
                return streams.size() == 2 && streams.get(1).checks.get() > 0;
            });
            assertEquals(List.of("Bearer first", "Bearer second"), streams.stream().map(Opened::token).toList());
            var first = streams.get(0);
            first.completed.get(20, TimeUnit.SECONDS);
            for (var left = first.checks.get(); left > 0; left--) {
                first.answers.onNext(ALLOWED);
            }
            first.answers.onCompleted();
            for (var check : underWay) {
                assertTrue(check.get(20, TimeUnit.SECONDS).allowed());
            }
        } finally {
            server.shutdownNow();
        }
    }

    @Test
    void aRejectedStreamOfLeasesDoesNotHideAnOutage() throws Exception {
        var isDown = new AtomicBoolean();
        var isRejected = new AtomicBoolean();
        var server = serve(new Service() {
            @Override
            public StreamObserver<LeaseRequest> lease(StreamObserver<LeaseResponse> answers) {
                isRejected.set(true);
                return super.lease(answers);
            }

            @Override
            public void check(CheckRequest request, StreamObserver<CheckResponse> answer) {
                if (isDown.get()) {
                    answer.onError(Status.UNAVAILABLE.asRuntimeException());
                } else {
                    super.check(request, answer);
                }
            }
        });
        try (var weir = client(server).lease().retries(0).breaker(4, Duration.ofHours(1)).build()) {
            var round = new AtomicInteger();
            // The third check of a key requests a lease, unless the machine is so slow that the key is not hot.
            Wait.until(LONG, () -> {
                isDown.set(false);
                assertTrue(weir.check("answered", "" + round.incrementAndGet()).allowed());
                isDown.set(true);
                for (var i = 0; i < 3; i++) {
                    assertThrows(WeirException.class, () -> weir.check("failed", "" + round));
                }
                return isRejected.get();
            });
            assertThrows(WeirException.class, () -> weir.check("failed", "last"));
            assertEquals(BreakerState.OPEN, weir.breakerState());
        } finally {
            server.shutdownNow();
        }
    }

    @Test
    void aSlotThatIsReleasedWhileItIsExtendedIsNotLost() throws Exception {
        var extending = new CompletableFuture<StreamObserver<ExtendResponse>>();
        var server = serve(new Service() {
            @Override
            public void reserve(ReserveRequest request, StreamObserver<ReserveResponse> answer) {
                answerReserve(answer);
            }

            @Override
            public void extend(ExtendRequest request, StreamObserver<ExtendResponse> answer) {
                extending.complete(answer);
            }

            @Override
            public void commit(CommitRequest request, StreamObserver<CommitResponse> answer) {
                // It decides the extension after the release.
                extending.join().onError(Status.NOT_FOUND.asRuntimeException());
                answer.onNext(CommitResponse.getDefaultInstance());
                answer.onCompleted();
            }
        });
        try (var weir = client(server).build()) {
            var slot = weir.slot(Check.of("exports", "alex"));
            extending.get(20, TimeUnit.SECONDS);
            slot.close();
            assertThrows(TimeoutException.class, () -> slot.whenLost().get(200, TimeUnit.MILLISECONDS));
        } finally {
            server.shutdownNow();
        }
    }

    @Test
    void whatIsReservedForACallerThatGaveUpIsCancelled() throws Exception {
        var reserving = new LinkedBlockingQueue<StreamObserver<ReserveResponse>>();
        var cancelled = new LinkedBlockingQueue<String>();
        var server = serve(new Service() {
            @Override
            public void reserve(ReserveRequest request, StreamObserver<ReserveResponse> answer) {
                reserving.add(answer);
            }

            @Override
            public void cancel(CancelRequest request, StreamObserver<CancelResponse> answer) {
                cancelled.add(request.getHold());
                answer.onNext(CancelResponse.getDefaultInstance());
                answer.onCompleted();
            }
        });
        try (var weir = client(server).build()) {
            List<Runnable> calls = List.of(() -> weir.slot(ALEX), () -> weir.reserve(ALEX, LONG));
            for (var call : calls) {
                var thread = new Thread(() -> assertThrows(WeirException.class, call::run));
                thread.start();
                var answer = reserving.poll(20, TimeUnit.SECONDS);
                thread.interrupt();
                thread.join();
                answerReserve(answer);
                assertEquals("held", cancelled.poll(20, TimeUnit.SECONDS));
            }
            var reservation = weir.reserveAsync(ALEX, LONG, OnExpiry.KEEP);
            var answer = reserving.poll(20, TimeUnit.SECONDS);
            reservation.cancel(false);
            answerReserve(answer);
            assertEquals("held", cancelled.poll(20, TimeUnit.SECONDS));
        } finally {
            server.shutdownNow();
        }
    }

    private static void answerReserve(StreamObserver<ReserveResponse> answer) {
        answer.onNext(ReserveResponse.newBuilder()
                .setDecision(ALLOWED)
                .setHold("held")
                .setExpiresAfter(Wire.duration(Duration.ofSeconds(3)))
                .build());
        answer.onCompleted();
    }

    @Test
    void aCheckOfARejectedStreamKeepsItsDeadline() throws Exception {
        var deadline = Duration.ofSeconds(20);
        var delayMs = 200;
        var leftMs = new CompletableFuture<Long>();
        var rejected = new CompletableFuture<Void>();
        var server = serve(new Service() {
            @Override
            public StreamObserver<LeaseRequest> lease(StreamObserver<LeaseResponse> answers) {
                var later = CompletableFuture.delayedExecutor(delayMs, TimeUnit.MILLISECONDS);
                return new Requests<>(
                        () -> later.execute(() -> {
                            rejected.complete(null);
                            answers.onError(Status.RESOURCE_EXHAUSTED.asRuntimeException());
                        }),
                        () -> {});
            }

            @Override
            public void check(CheckRequest request, StreamObserver<CheckResponse> answer) {
                if (rejected.isDone()) {
                    leftMs.complete(Context.current().getDeadline().timeRemaining(TimeUnit.MILLISECONDS));
                }
                super.check(request, answer);
            }
        });
        try (var weir = client(server).lease().deadline(deadline).build()) {
            Wait.until(LONG, () -> weir.check(ALEX).allowed() && leftMs.isDone());
            assertTrue(leftMs.get() <= deadline.toMillis() - delayMs, () -> leftMs + " ms");
        } finally {
            server.shutdownNow();
        }
    }
}
