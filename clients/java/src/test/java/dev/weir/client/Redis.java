package dev.weir.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;

/** A Redis server, on a socket in a directory of the test. */
final class Redis implements AutoCloseable {
    private final Path socket;
    private final Process process;

    Redis(Path directory) throws IOException {
        socket = directory.resolve("redis.sock");
        process = new ProcessBuilder(
                        "redis-server", "--port", "0", "--unixsocket", socket.toString(), "--save", "", "--appendonly", "no",
                        "--dir", directory.toString())
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .start();
        Wait.until(Duration.ofSeconds(20), () -> Files.exists(socket));
    }

    /** Returns the settings of a Weir that uses it, with timeouts for a busy machine. */
    Map<String, String> settings() {
        return Map.of(
                "WEIR_STORE__URL", "redis+unix://" + socket,
                "WEIR_STORE__REDIS__COMMAND_TIMEOUT", "10s",
                "WEIR_STORE__REDIS__CONNECT_TIMEOUT", "10s");
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
