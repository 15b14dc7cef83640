package dev.weir.example;

import dev.weir.client.WeirClient;
import java.time.Duration;

/** The smallest call: may alex trade? */
public class Call {
    public static void main(String[] arguments) {
        var address = System.getenv().getOrDefault("WEIR_ADDR", "127.0.0.1:8081");
        try (var weir = WeirClient.builder(address).deadline(Duration.ofSeconds(10)).build()) {
            var decision = weir.check("user", "alex", "trade");
            if (decision.allowed()) {
                System.out.printf("allowed, %d of %d left%n", decision.remaining(), decision.limit());
            } else {
                System.out.printf("refused, retry after %d s%n", decision.retryAfter().orElseThrow().toSeconds());
            }
        }
    }
}
