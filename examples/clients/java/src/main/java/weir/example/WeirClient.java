package weir.example;

import com.google.protobuf.Duration;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Level;
import java.util.logging.Logger;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.CheckResponse;

/** Sends checks to Weir, with a deadline, over one connection for the whole process. */
public class WeirClient {
    /** A decision takes less than a millisecond: one that is this late means trouble, and the user has waited long enough. */
    private static final String DEADLINE_MS = "50";
    private static final long NOT_OFTENER_NS = TimeUnit.SECONDS.toNanos(10);
    private static final long RECONNECT_NS = TimeUnit.SECONDS.toNanos(1);
    /** 256 UTF-16 units are at most 768 bytes, and Weir takes 1,024: what a user sends must not make a check invalid. */
    private static final int MAX_SEGMENT_LENGTH = 256;
    /** These pass by themselves. All others mean that something is set up wrongly. */
    private static final Set<Status.Code> OUTAGES = Set.of(
            Status.Code.UNAVAILABLE, Status.Code.DEADLINE_EXCEEDED, Status.Code.RESOURCE_EXHAUSTED, Status.Code.INTERNAL);

    private static final Logger LOG = Logger.getLogger("weir");

    private final long deadlineMs;
    private final ManagedChannel channel;
    private final RateLimiterGrpc.RateLimiterBlockingStub stub;
    private final Map<Status.Code, Trouble> troubles = new ConcurrentHashMap<>();
    private final Pace reconnects = new Pace(RECONNECT_NS);

    /** Reads WEIR_ADDR, WEIR_TOKEN, WEIR_TLS_CA and WEIR_DEADLINE_MS. It does not wait for the service. */
    public WeirClient(Map<String, String> environment) throws IOException {
        deadlineMs = Long.parseLong(environment.getOrDefault("WEIR_DEADLINE_MS", DEADLINE_MS));
        var ca = environment.get("WEIR_TLS_CA");
        var credentials = ca == null
                ? InsecureChannelCredentials.create()
                : TlsChannelCredentials.newBuilder().trustManager(new File(ca)).build();
        channel = Grpc.newChannelBuilder(environment.getOrDefault("WEIR_ADDR", "127.0.0.1:8081"), credentials)
                // Every replica behind a DNS name (a headless service in Kubernetes) gets its share.
                .defaultLoadBalancingPolicy("round_robin")
                // A check is not idempotent: sent twice, it may be charged twice. So retries are off, in this code and in DNS records.
                .disableRetry()
                .disableServiceConfigLookUp()
                // A dead connection is noticed without a request, and an idle one is kept.
                .keepAliveTime(30, TimeUnit.SECONDS)
                .keepAliveTimeout(5, TimeUnit.SECONDS)
                .keepAliveWithoutCalls(true)
                .idleTimeout(365, TimeUnit.DAYS)
                .build();
        // Connects now, so that the first request need not wait for it.
        channel.getState(true);
        var headers = new Metadata();
        if (environment.containsKey("WEIR_TOKEN")) {
            var name = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
            headers.put(name, "Bearer " + environment.get("WEIR_TOKEN"));
        }
        stub = RateLimiterGrpc.newBlockingStub(channel)
                .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
    }

    /** The decision on a key, or nothing where there is none. */
    public Optional<CheckResponse> check(List<String> key) {
        var request = CheckRequest.newBuilder()
                .addAllKey(key.stream().map(WeirClient::bounded).toList())
                // A limit that shapes traffic refuses instead of answering with a wait: this client does not delay requests.
                .setMaxWait(Duration.getDefaultInstance())
                .build();
        try {
            return Optional.of(stub.withDeadlineAfter(deadlineMs, TimeUnit.MILLISECONDS).check(request));
        } catch (StatusRuntimeException error) {
            tell(error.getStatus());
            return Optional.empty();
        }
    }

    /** For your metrics: checks without a decision, for this reason. */
    public long undecided(Status.Code code) {
        return troubles.containsKey(code) ? troubles.get(code).count.get() : 0;
    }

    private void tell(Status status) {
        var code = status.getCode();
        if (code == Status.Code.UNAVAILABLE && reconnects.isDue()) {
            // The pauses between attempts grow to two minutes, for which nothing would be guarded after an outage.
            channel.resetConnectBackoff();
        }
        var trouble = troubles.computeIfAbsent(code, any -> new Trouble());
        var soFar = trouble.count.incrementAndGet();
        if (trouble.lines.isDue()) {
            var what = OUTAGES.contains(code) ? "no answer from weir" : "WEIR IS SET UP WRONGLY, NOTHING IS LIMITED";
            LOG.log(OUTAGES.contains(code) ? Level.WARNING : Level.SEVERE, "{0}: {1} ({2}); {3} checks without a decision so far",
                    new Object[] {what, code, status.getDescription(), soFar});
        }
    }

    private static String bounded(String segment) {
        return segment.isEmpty() ? "-" : segment.substring(0, Math.min(segment.length(), MAX_SEGMENT_LENGTH));
    }

    private static class Trouble {
        final AtomicLong count = new AtomicLong();
        final Pace lines = new Pace(NOT_OFTENER_NS);
    }

    /** Due once in each while. */
    private static class Pace {
        private final long everyNs;
        private final AtomicLong next = new AtomicLong(System.nanoTime());

        Pace(long everyNs) {
            this.everyNs = everyNs;
        }

        boolean isDue() {
            var now = System.nanoTime();
            var due = next.get();
            return now - due >= 0 && next.compareAndSet(due, now + everyNs);
        }
    }
}
