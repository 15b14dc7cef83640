package dev.weir.client;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** A token that a file has. A call reads the file again, at most once a second, so that tokens may rotate. */
final class TokenSource {
    private static final long RECHECK_NS = TimeUnit.SECONDS.toNanos(1);

    private final Path file;
    private final AtomicLong nextCheck;
    private volatile String token;

    private TokenSource(Path file, String token) {
        this.file = file;
        this.token = token;
        this.nextCheck = new AtomicLong(System.nanoTime() + RECHECK_NS);
    }

    static TokenSource fixed(String token) {
        return new TokenSource(null, token);
    }

    static TokenSource file(Path file) {
        try {
            return new TokenSource(file, Files.readString(file).strip());
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }

    String current() {
        var due = nextCheck.get();
        var now = System.nanoTime();
        if (file != null && now - due >= 0 && nextCheck.compareAndSet(due, now + RECHECK_NS)) {
            try {
                var read = Files.readString(file).strip();
                // A file that is being written may be empty.
                if (!read.isEmpty()) {
                    token = read;
                }
            } catch (IOException unreadable) {
                // The last token may still be good; if it is not, the service says so.
            }
        }
        return token;
    }
}
