package weir.example;

import com.google.protobuf.Duration;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import weir.v1.RateLimiterGrpc;
import weir.v1.RateLimiterGrpc.RateLimiterBlockingStub;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.CommitRequest;
import weir.v1.Weir.ExtendRequest;
import weir.v1.Weir.ReserveRequest;

/** Functions of which only so many run at the same time: a slot is held around each, and extended while it runs. */
public class Slots {
    /** All slots are taken. */
    static class AllTaken extends Exception {}

    private final ScheduledExecutorService extending = Executors.newSingleThreadScheduledExecutor();
    private final RateLimiterBlockingStub stub;

    Slots(RateLimiterBlockingStub stub) {
        this.stub = stub;
    }

    private RateLimiterBlockingStub weir() {
        return stub.withDeadlineAfter(10, TimeUnit.SECONDS);
    }

    /** Runs work with a slot of a concurrency limit. Should this process die, the slot is free after the limit's ttl. */
    void run(List<String> key, Runnable work) throws AllTaken {
        var check = CheckRequest.newBuilder().addAllKey(key);
        var taken = weir().reserve(ReserveRequest.newBuilder().setCheck(check).build());
        if (!taken.getDecision().getAllowed()) {
            throw new AllTaken();
        }
        var done = new AtomicBoolean();
        extendAfter(third(taken.getExpiresAfter()), taken.getHold(), done);
        try {
            work.run();
        } finally {
            done.set(true);
            try {
                weir().commit(CommitRequest.newBuilder().setHold(taken.getHold()).build());
            } catch (StatusRuntimeException failed) {
                System.err.println("the slot is free after its ttl: " + failed.getMessage());
            }
        }
    }

    /** An answer may be lost, and the next one is in time. */
    private static long third(Duration lasts) {
        return (lasts.getSeconds() * 1_000 + lasts.getNanos() / 1_000_000) / 3;
    }

    private void extendAfter(long milliseconds, String hold, AtomicBoolean done) {
        extending.schedule(() -> extend(milliseconds, hold, done), milliseconds, TimeUnit.MILLISECONDS);
    }

    private void extend(long milliseconds, String hold, AtomicBoolean done) {
        if (done.get()) {
            return;
        }
        var next = milliseconds;
        try {
            var request = ExtendRequest.newBuilder().setHold(hold).build();
            next = third(stub.withDeadlineAfter(milliseconds, TimeUnit.MILLISECONDS).extend(request).getExpiresAfter());
        } catch (StatusRuntimeException unanswered) {
            if (unanswered.getStatus().getCode() == Status.Code.NOT_FOUND) {
                // Work that must not go on without a slot stops here.
                System.err.println("the slot is lost: another one may run too");
                return;
            }
        }
        extendAfter(next, hold, done);
    }

    public static void main(String[] arguments) throws AllTaken {
        var address = System.getenv().getOrDefault("WEIR_ADDR", "127.0.0.1:8081");
        var channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        var slots = new Slots(RateLimiterGrpc.newBlockingStub(channel));
        var exports = List.of("exports", "alex");
        slots.run(exports, () -> {
            System.out.println("exporting");
            try {
                slots.run(exports, () -> System.out.println("two at the same time"));
            } catch (AllTaken full) {
                System.out.println("another one has to wait");
            }
        });
        slots.run(exports, () -> System.out.println("exporting again"));
        slots.extending.shutdownNow();
        channel.shutdownNow();
    }
}
