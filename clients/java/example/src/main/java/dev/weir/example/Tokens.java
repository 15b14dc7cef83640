package dev.weir.example;

import dev.weir.client.Check;
import dev.weir.client.WeirClient;
import java.time.Duration;

/** A cost that is known afterwards: reserves an estimate for a call of a language model, and settles the units used. */
public class Tokens {
    private static final long ESTIMATE = 10;

    /** Stands for the model: the tokens that its answer took. */
    private static long complete(String prompt) {
        return prompt.length() - 1;
    }

    public static void main(String[] arguments) {
        var address = System.getenv().getOrDefault("WEIR_ADDR", "127.0.0.1:8081");
        try (var weir = WeirClient.builder(address).deadline(Duration.ofSeconds(10)).build()) {
            // Longer than any call takes. A reservation that is not settled counts as spent then.
            var ttl = Duration.ofMinutes(2);
            try (var reservation = weir.reserve(Check.of("user", "alex").withCost(ESTIMATE), ttl)) {
                if (!reservation.decision().allowed()) {
                    throw new IllegalStateException("refused");
                }
                var settled = reservation.commit(complete("hello"));
                System.out.printf(
                        "used %d of %d reserved, %d given back, %d over%n",
                        settled.charged(), ESTIMATE, settled.refunded(), settled.overage());
            }
        }
    }
}
