package dev.weir.client;

import java.security.SecureRandom;
import java.util.HexFormat;
import weir.v1.Weir.CheckRequest;

/** Makes checks repeatable: with an id the service charges a request once, however often it is asked. */
final class RequestIds {
    private static final int ID_BYTES = 16;

    // A hold follows from its id, so ids must not be guessed.
    private final SecureRandom random = new SecureRandom();

    /** The check, with an id if it needs one. Refunds have none: the service would have to remember too much. */
    CheckRequest identified(CheckRequest check) {
        return isRepeatable(check) || cost(check) < 0 ? check : check.toBuilder().setRequestId(next()).build();
    }

    /** Whether a repeated check charges nothing that the first one has not charged. */
    static boolean isRepeatable(CheckRequest check) {
        return cost(check) == 0 || check.getDryRun() || !check.getRequestId().isEmpty();
    }

    private static long cost(CheckRequest check) {
        return check.hasCost() ? check.getCost() : 1;
    }

    private String next() {
        var bytes = new byte[ID_BYTES];
        random.nextBytes(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
