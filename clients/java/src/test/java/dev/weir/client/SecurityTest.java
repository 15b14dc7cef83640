package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.weir.client.WeirException.Kind;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SecurityTest {
    @TempDir
    private Path directory;

    /** A token, and its hash for the credentials file. */
    private record Token(String text, String sha256) {
        static Token make() throws Exception {
            var json = Weir.run("token", "shop", "--json");
            return new Token(field(json, "token"), field(json, "sha256"));
        }

        private static String field(String json, String name) {
            var matcher = Pattern.compile('"' + name + "\":\"([^\"]*)\"").matcher(json);
            assertTrue(matcher.find(), json);
            return matcher.group(1);
        }
    }

    /** Writes a credentials file in which these tokens have the role check. */
    private Path credentials(Token... tokens) throws IOException {
        var known = Arrays.stream(tokens).map(token -> "{ sha256: " + token.sha256 + " }").collect(Collectors.joining(", "));
        var written = directory.resolve("callers.new");
        Files.writeString(written, "callers: { shop: { roles: [check], tokens: [" + known + "] } }\n");
        return Files.move(written, directory.resolve("callers.yaml"), StandardCopyOption.REPLACE_EXISTING);
    }

    private static Kind error(WeirClient weir) {
        return assertThrows(WeirException.class, () -> weir.check("user", "alex")).kind();
    }

    @Test
    void tokensTellWhoCallsAndRolesWhatHeMay() throws Exception {
        var token = Token.make();
        try (var server = Weir.start(directory, Map.of("WEIR_AUTH__FILE", credentials(token).toString()))) {
            try (var weir = server.client().token(token.text).build()) {
                assertTrue(weir.check("user", "alex").allowed());
                var reset = assertThrows(WeirException.class, () -> weir.reset("", List.of("user", "alex"), false));
                assertEquals(Kind.PERMISSION_DENIED, reset.kind());
            }
            try (var weir = server.client().build()) {
                assertEquals(Kind.UNAUTHENTICATED, error(weir));
            }
            try (var weir = server.client().token("guessed").coalesce().build()) {
                assertEquals(Kind.UNAUTHENTICATED, error(weir));
            }
        }
    }

    @Test
    void aTokenInAFileMayRotate() throws Exception {
        var first = Token.make();
        var second = Token.make();
        var file = Files.writeString(directory.resolve("token"), first.text + "\n");
        try (var server = Weir.start(directory, Map.of("WEIR_AUTH__FILE", credentials(first).toString()));
                var weir = server.client().tokenFile(file).build()) {
            assertTrue(weir.check("user", "alex").allowed());
            credentials(second);
            Wait.until(Duration.ofSeconds(20), () -> !passes(weir));
            Files.writeString(file, second.text);
            Wait.until(Duration.ofSeconds(20), () -> passes(weir));
        }
    }

    private static boolean passes(WeirClient weir) {
        try {
            return weir.check(Check.of("user", "alex").withCost(0)).allowed();
        } catch (WeirException rejected) {
            assertEquals(Kind.UNAUTHENTICATED, rejected.kind());
            return false;
        }
    }

    @Test
    void aTokenFileWithoutATokenLeavesTheLastOne() throws Exception {
        var token = Token.make();
        var file = directory.resolve("token");
        try (var server = Weir.start(directory, Map.of("WEIR_AUTH__FILE", credentials(token).toString()))) {
            for (var bad : List.of("", "two\nlines", "t\u00f6k\u00e9n")) {
                Files.writeString(file, token.text);
                try (var log = new Log(); var weir = server.client().tokenFile(file).build()) {
                    Files.writeString(file, bad);
                    Wait.until(Duration.ofSeconds(20), () -> {
                        assertTrue(passes(weir), bad);
                        return log.has("the last token is sent", file.toString());
                    });
                }
                assertThrows(UncheckedIOException.class, () -> WeirClient.builder("localhost").tokenFile(file), bad);
            }
        }
        assertThrows(IllegalArgumentException.class, () -> WeirClient.builder("localhost").token("two\nlines"));
    }

    /** The log lines of the package. */
    private static final class Log extends Handler implements AutoCloseable {
        private final Queue<String> lines = new ConcurrentLinkedQueue<>();
        private final Logger logger = Logger.getLogger("dev.weir.client");

        Log() {
            logger.addHandler(this);
        }

        boolean has(String... words) {
            return lines.stream().anyMatch(line -> Arrays.stream(words).allMatch(line::contains));
        }

        @Override
        public void publish(LogRecord line) {
            lines.add(new SimpleFormatter().formatMessage(line));
        }

        @Override
        public void flush() {}

        @Override
        public void close() {
            logger.removeHandler(this);
        }
    }

    @Test
    void aTokenFileMustBeReadable() {
        var missing = directory.resolve("missing");
        assertThrows(UncheckedIOException.class, () -> WeirClient.builder("localhost").tokenFile(missing));
        assertThrows(UncheckedIOException.class, () -> WeirClient.builder("localhost").tls(Tls.trusting(missing)));
    }

    private void openssl(String... arguments) throws Exception {
        var command = Arrays.asList(arguments);
        var process = new ProcessBuilder(command).directory(directory.toFile()).redirectErrorStream(true).start();
        var told = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), told);
    }

    /** Creates a self-signed certificate, which is its own CA. */
    private Path certificate(String name) throws Exception {
        openssl("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", name + ".key", "-out", name + ".pem",
                "-days", "2", "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1,IP:::1,DNS:" + name);
        return directory.resolve(name + ".pem");
    }

    private Path key(String name) {
        return directory.resolve(name + ".key");
    }

    @Test
    void aListMayHaveIpv6Addresses() throws Exception {
        assumeTrue(hasIpv6(), "this machine has no IPv6");
        try (var service = Weir.start(directory, Map.of("WEIR_GRPC__LISTEN", "[::1]:0"));
                var weir = Weir.client(service.address() + ", " + service.address()).build()) {
            assertTrue(weir.check("user", "alex").allowed());
        }
        var certificate = certificate("server");
        var settings = Map.of(
                "WEIR_GRPC__LISTEN", "[::1]:0",
                "WEIR_GRPC__TLS__CERT", certificate.toString(),
                "WEIR_GRPC__TLS__KEY", key("server").toString());
        var trusting = Tls.trusting(certificate);
        try (var service = Weir.start(directory, settings);
                var weir = Weir.client(service.address() + "," + service.address()).tls(trusting).build()) {
            assertTrue(weir.check("user", "alex").allowed());
        }
    }

    private static boolean hasIpv6() {
        try (var socket = new ServerSocket(0, 1, InetAddress.getByName("::1"))) {
            return socket.isBound();
        } catch (IOException unsupported) {
            return false;
        }
    }

    @Test
    void tlsAndMutualTls() throws Exception {
        var server = certificate("server");
        var client = certificate("client");
        var settings = Map.of(
                "WEIR_GRPC__TLS__CERT", server.toString(),
                "WEIR_GRPC__TLS__KEY", key("server").toString(),
                "WEIR_GRPC__TLS__CLIENT_CA", client.toString());
        try (var service = Weir.start(directory, settings)) {
            var trusting = Tls.trusting(server);
            try (var weir = service.client().tls(trusting.withIdentity(client, key("client"))).build()) {
                assertTrue(weir.check("user", "alex").allowed());
            }
            var twice = service.address() + "," + service.address();
            try (var weir = Weir.client(twice).tls(trusting.withIdentity(client, key("client"))).build()) {
                assertTrue(weir.check("user", "alex").allowed());
            }
            // The name of each address is verified: localhost is not in the certificate.
            var named = twice.replace("127.0.0.1", "localhost");
            try (var weir = Weir.client(named).retries(0).tls(trusting.withIdentity(client, key("client"))).build()) {
                assertEquals(Kind.UNAVAILABLE, error(weir));
            }
            try (var weir = service.client().retries(0).tls(trusting).build()) {
                assertEquals(Kind.UNAVAILABLE, error(weir));
            }
            try (var weir = service.client().retries(0).tls(Tls.system()).build()) {
                assertEquals(Kind.UNAVAILABLE, error(weir));
            }
        }
    }
}
