package dev.weir.client;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** Waits for another process. */
public final class Wait {
    private Wait() {}

    public static void until(Duration timeout, BooleanSupplier condition) {
        var end = System.nanoTime() + timeout.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() - end > 0) {
                throw new AssertionError("not in time");
            }
            LockSupport.parkNanos(Duration.ofMillis(5).toNanos());
        }
    }
}
