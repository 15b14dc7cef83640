package dev.weir.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.DoubleStream;
import java.util.stream.Stream;

/** A real Weir on free loopback ports, with its files in a directory of the test. */
public final class Weir implements AutoCloseable {
    /** Refilled too slowly to matter during a test. */
    public static final String POLICY = """
            schema:
              user:
                children:
                  "*":
                    limits: [{ gcra: { burst: 99, count: 1, period: 1d }, name: per-user }]
                    children:
                      trade: { limits: [{ gcra: { burst: 2, count: 1, period: 1d }, name: 'trades "fair"' }] }
                      weir.v1.RateLimiter/Reset: { limits: [{ gcra: { burst: 2, count: 1, period: 1d } }] }
              many: { children: { "*": { limits: [{ gcra: { burst: 999999, count: 1, period: 1000s }, name: many }] } } }
              exports: { children: { "*": { limits: [{ concurrency: { max: 1, ttl: 1m }, name: exports }] } } }
              hot: { children: { "*": { limits: [{ gcra: { burst: 99999, count: 1, period: 1h }, name: hot, lease: true }] } } }
              few: { children: { "*": { limits: [{ gcra: { burst: 999, count: 1, period: 1d }, name: few, lease: true }] } } }
              held: { children: { "*": { limits: [{ gcra: { burst: 999, count: 1, period: 1d }, lease: { ttl: 1m } }] } } }
              ample: { children: { "*": { limits: [
                { token_bucket: { capacity: 4000000000, count: 4000000000, period: 1s }, lease: true } ] } } }
            """;
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final Pattern SERVING = Pattern.compile("\"message\":\"serving\".*\"grpc\":\"([^\"]*)\".*\"http\":\"([^\"]*)\"");

    /** A policy file, or a directory of policy files. */
    private final Path limits;
    private final Map<String, String> settings;
    private Process process;
    private String address;
    private String http;

    private Weir(Path limits, Map<String, String> settings) {
        this.limits = limits;
        this.settings = new HashMap<>(settings);
    }

    public static Weir start(Path directory) {
        return start(directory, Map.of());
    }

    /** Starts a service with settings, which are environment variables. */
    public static Weir start(Path directory, Map<String, String> settings) {
        var weir = new Weir(directory.resolve("limits.yaml"), settings);
        weir.start();
        return weir;
    }

    /** Starts a service with a policy file or a directory of policy files. */
    public static Weir serve(Path limits) {
        var weir = new Weir(limits, Map.of());
        weir.start();
        return weir;
    }

    /** Starts the process; again at the same address. */
    public void start() {
        try {
            if (!Files.exists(limits)) {
                Files.writeString(limits, POLICY);
            }
            var builder = new ProcessBuilder(binary(), "serve", "--limits", limits.toString());
            // The service rejects unknown settings, such as WEIR_BINARY.
            builder.environment().keySet().removeIf(name -> name.startsWith("WEIR_"));
            builder.environment().putAll(Map.of(
                    "WEIR_GRPC__LISTEN", address == null ? "127.0.0.1:0" : address,
                    "WEIR_HTTP__LISTEN", "127.0.0.1:0",
                    "WEIR_LOG__FORMAT", "json",
                    "WEIR_SHUTDOWN__DELAY", "1ms",
                    "WEIR_LIMITS_POLL", "50ms"));
            builder.environment().putAll(settings);
            process = builder.redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
            address = served(process.errorReader());
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    private String served(BufferedReader log) throws IOException {
        var told = new StringBuilder();
        for (String line; (line = log.readLine()) != null; told.append(line).append('\n')) {
            var serving = SERVING.matcher(line);
            if (serving.find()) {
                // Read the rest of the log, so that the service never blocks on it.
                var rest = new Thread(() -> drain(log), "log of weir");
                rest.setDaemon(true);
                rest.start();
                http = serving.group(2);
                return serving.group(1);
            }
        }
        throw new IllegalStateException("weir does not start:\n" + told);
    }

    private static void drain(BufferedReader log) {
        try {
            log.transferTo(Writer.nullWriter());
        } catch (IOException killed) {
            // The process has ended: there is nothing more to read.
        }
    }

    static String binary() {
        var named = System.getenv("WEIR_BINARY");
        return named != null ? named : Path.of("../../target/debug/weir").toAbsolutePath().toString();
    }

    /** Runs a command of weir, and returns its output. */
    public static String run(String... arguments) throws IOException, InterruptedException {
        var command = Stream.concat(Stream.of(binary()), Stream.of(arguments)).toList();
        var process = new ProcessBuilder(command).start();
        var printed = new String(process.getInputStream().readAllBytes());
        process.waitFor();
        return printed;
    }

    public String address() {
        return address;
    }

    /** Returns a client with a deadline for a busy machine. */
    public WeirClientBuilder client() {
        return client(address);
    }

    public static WeirClientBuilder client(String target) {
        return WeirClient.builder(target).deadline(Duration.ofSeconds(20));
    }

    /** Returns a client of an address where no process listens. A retry would wait for one until the deadline. */
    public static WeirClientBuilder nowhere() {
        return client("127.0.0.1:1").retries(0);
    }

    /** Returns whether a client is connected. */
    public boolean isConnected() {
        return hasConnections(1);
    }

    /** Returns whether at least that many clients are connected. */
    public boolean hasConnections(int clients) {
        return samples("weir_connections{", "grpc").anyMatch(connections -> connections >= clients);
    }

    /** Returns the number of checks answered over a transport: {@code grpc}, {@code grpc_stream}. */
    public long checks(String transport) {
        return (long) samples("weir_checks_total{", "transport=\"" + transport + "\"").sum();
    }

    /** Returns the number of streams rejected because of {@code grpc.max_open_streams}. */
    public long rejectedStreams() {
        return (long) samples("weir_requests_rejected_total{", "listener=\"grpc\",reason=\"open\"").sum();
    }

    /** Checks until the checks of this client use a stream to one of these services. */
    public static void streaming(WeirClient weir, Weir... services) {
        var before = streamed(services);
        Wait.until(Duration.ofSeconds(20), () -> {
            weir.check(Check.of("many", "streaming"));
            return streamed(services) > before;
        });
    }

    private static long streamed(Weir... services) {
        return Stream.of(services).mapToLong(service -> service.checks("grpc_stream")).sum();
    }

    private DoubleStream samples(String name, String label) {
        var metrics = HttpRequest.newBuilder(URI.create("http://" + http + "/metrics")).build();
        try {
            return HTTP.send(metrics, HttpResponse.BodyHandlers.ofLines())
                    .body()
                    .filter(line -> line.startsWith(name) && line.contains(label))
                    .mapToDouble(line -> Double.parseDouble(line.substring(line.lastIndexOf(' '))));
        } catch (IOException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }

    public void kill() {
        process.destroyForcibly();
        ended();
    }

    /** Stops the process gracefully, which writes the snapshot if one is configured. */
    public void stop() {
        // Process.destroy would also close the pipe of the log, to which the service writes until it ends.
        process.toHandle().destroy();
        var status = ended();
        if (status != 0) {
            throw new IllegalStateException("weir does not stop gracefully: exit code " + status);
        }
    }

    /** Replaces the policy file, which the service reloads automatically. */
    public void enforce(String policy) {
        try {
            Files.writeString(limits, policy);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    private int ended() {
        try {
            return process.waitFor();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** Stops the process without closing its connections (SIGSTOP). */
    public void freeze() {
        signal("-STOP");
        // The signal takes a while on a busy machine. In /proc/PID/stat the state comes after the name, which is in
        // parentheses.
        var stat = Path.of("/proc/" + process.pid() + "/stat");
        Wait.until(Duration.ofSeconds(20), () -> read(stat).contains(") T "));
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }

    public void thaw() {
        signal("-CONT");
    }

    private void signal(String signal) {
        try {
            new ProcessBuilder("kill", signal, Long.toString(process.pid())).start().waitFor();
        } catch (IOException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }

    @Override
    public void close() {
        kill();
    }
}
