package weir.example;

import com.google.protobuf.Duration;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import java.util.concurrent.TimeUnit;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CancelRequest;
import weir.v1.Weir.CheckRequest;
import weir.v1.Weir.CommitRequest;
import weir.v1.Weir.ReserveRequest;

/** A cost that is known afterwards: reserves an estimate for a call of a language model, and settles by what it used. */
public class Tokens {
    private static final long ESTIMATE = 10;

    /** Stands for the model: the tokens that its answer took. */
    private static long complete(String prompt) {
        return prompt.length() - 1;
    }

    public static void main(String[] arguments) {
        var address = System.getenv().getOrDefault("WEIR_ADDR", "127.0.0.1:8081");
        var channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        var weir = RateLimiterGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
        var check = CheckRequest.newBuilder().addKey("user").addKey("alex").setCost(ESTIMATE);
        // Longer than any call takes. A reservation that nobody settles counts as spent then.
        var ttl = Duration.newBuilder().setSeconds(120);
        var reserved = weir.reserve(ReserveRequest.newBuilder().setCheck(check).setTtl(ttl).build());
        if (!reserved.getDecision().getAllowed()) {
            throw new IllegalStateException("refused");
        }
        long used;
        try {
            used = complete("hello");
        } catch (RuntimeException failed) {
            weir.cancel(CancelRequest.newBuilder().setHold(reserved.getHold()).build());
            throw failed;
        }
        // Idempotent: repeat it where the answer is lost.
        var settled = weir.commit(CommitRequest.newBuilder().setHold(reserved.getHold()).setActual(used).build());
        System.out.printf("used %d of %d reserved, %d given back, %d over%n",
                settled.getCharged(), ESTIMATE, settled.getRefunded(), settled.getOverage());
        channel.shutdownNow();
    }
}
