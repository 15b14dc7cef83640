package weir.example;

import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.StatusRuntimeException;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
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
        var lasts = taken.getExpiresAfter();
        var every = (lasts.getSeconds() * 1_000 + lasts.getNanos() / 1_000_000) / 2;
        var extend = extending.scheduleAtFixedRate(() -> extend(taken.getHold()), every, every, TimeUnit.MILLISECONDS);
        try {
            work.run();
        } finally {
            extend.cancel(false);
            weir().commit(CommitRequest.newBuilder().setHold(taken.getHold()).build());
        }
    }

    private void extend(String hold) {
        try {
            weir().extend(ExtendRequest.newBuilder().setHold(hold).build());
        } catch (StatusRuntimeException unanswered) {
            // The next one may be answered.
        }
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
        slots.extending.shutdown();
        channel.shutdownNow();
    }
}
