package dev.weir.client;

import java.security.SecureRandom;
import java.util.HexFormat;
import weir.v1.Weir.CheckRequest;

/** Makes checks repeatable: with an id the service charges a request once, however often it is asked. */
final class RequestIds {
    private static final int ID_BYTES = 16;

    // A hold follows from its id, so ids must not be guessed.
    private final SecureRandom random = new SecureRandom();

    /** The check, with an id if it needs one. */
    CheckRequest identified(CheckRequest check) {
        return isRepeatable(check) ? check : check.toBuilder().setRequestId(next()).build();
    }

    /** Whether a repeated check charges nothing that the first one has not charged. */
    static boolean isRepeatable(CheckRequest check) {
        var charges = !check.hasCost() || check.getCost() != 0;
        return !charges || check.getDryRun() || !check.getRequestId().isEmpty();
    }

    private String next() {
        var bytes = new byte[ID_BYTES];
        random.nextBytes(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
