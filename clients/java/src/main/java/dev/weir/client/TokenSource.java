package dev.weir.client;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A bearer token, fixed or in a file. A call reads the file again, at most once a second, so a new token is used without a
 * restart.
 */
final class TokenSource {
    private static final Logger LOG = System.getLogger("dev.weir.client");
    private static final long RECHECK_NS = TimeUnit.SECONDS.toNanos(1);

    private final Path file;
    private final AtomicLong nextCheck;
    private volatile String token;
    /** The file had no token when it was last read, and this is logged. */
    private volatile boolean isUnusable;

    private TokenSource(Path file, String token) {
        this.file = file;
        this.token = token;
        this.nextCheck = new AtomicLong(System.nanoTime() + RECHECK_NS);
    }

    static TokenSource fixed(String token) {
        if (!isPrintable(token)) {
            throw new IllegalArgumentException("a token must be printable ASCII");
        }
        return new TokenSource(null, token);
    }

    static TokenSource file(Path file) {
        try {
            return new TokenSource(file, read(file));
        } catch (IOException unusable) {
            throw new UncheckedIOException(unusable);
        }
    }

    private static String read(Path file) throws IOException {
        var token = Files.readString(file).strip();
        if (token.isEmpty() || !isPrintable(token)) {
            throw new IOException(file + ": a token must be printable ASCII");
        }
        return token;
    }

    /** Returns whether a header can carry the token. gRPC would change any other one, or break the connection. */
    private static boolean isPrintable(String token) {
        return token.chars().allMatch(letter -> letter >= ' ' && letter <= '~');
    }

    String current() {
        var due = nextCheck.get();
        var now = System.nanoTime();
        if (file != null && now - due >= 0 && nextCheck.compareAndSet(due, now + RECHECK_NS)) {
            reread();
        }
        return token;
    }

    private void reread() {
        try {
            token = read(file);
            isUnusable = false;
        } catch (IOException unusable) {
            // Keep the last token. If it is not valid any more, the service says so.
            if (!isUnusable) {
                LOG.log(Level.WARNING, "the last token is sent: the token file has none: {0}", unusable.toString());
            }
            isUnusable = true;
        }
    }
}
