package dev.weir.client;

import java.security.SecureRandom;
import java.util.HexFormat;
import weir.v1.Weir.CheckRequest;

/** Draws idempotency keys: the service charges checks with the same id once, however often they are sent. */
final class RequestIds {
    private static final int ID_BYTES = 16;

    // The hold of a reservation is derived from its request id, so ids must be unguessable.
    private final SecureRandom random = new SecureRandom();

    /** Returns the check, with an id unless it is idempotent already. */
    CheckRequest identified(CheckRequest check) {
        return isRepeatable(check) ? check : check.toBuilder().setRequestId(next()).build();
    }

    /** Returns whether the check is idempotent: it charges nothing, or has an id. */
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
