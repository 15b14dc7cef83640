package weir.example;

import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import java.util.concurrent.TimeUnit;
import weir.v1.RateLimiterGrpc;
import weir.v1.Weir.CheckRequest;

/** The smallest call: may alex trade? */
public class Call {
    public static void main(String[] arguments) {
        var address = System.getenv().getOrDefault("WEIR_ADDR", "127.0.0.1:8081");
        var channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        var weir = RateLimiterGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
        var answer = weir.check(CheckRequest.newBuilder().addKey("user").addKey("alex").addKey("trade").build());
        if (answer.getAllowed()) {
            System.out.printf("allowed, %d of %d left%n", answer.getRemaining(), answer.getLimit());
        } else {
            var retryAfter = answer.getRetryAfter();
            System.out.printf("refused, retry after %.3f s%n", retryAfter.getSeconds() + retryAfter.getNanos() / 1e9);
        }
        channel.shutdownNow();
    }
}
