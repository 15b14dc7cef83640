package dev.weir.client.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.weir.client.Check;
import dev.weir.client.Guard;
import dev.weir.client.OnFailure;
import dev.weir.client.Weir;
import dev.weir.client.WeirClient;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Optional;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class GuardFilterTest {
    @TempDir
    private Path directory;

    private final Server http = new Server(new InetSocketAddress("127.0.0.1", 0));

    private static final class Welcome extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.getWriter().write("welcome");
        }
    }

    @AfterEach
    void stop() throws Exception {
        http.stop();
    }

    static GuardFilter filter(WeirClient weir) {
        return new GuardFilter(Guard.failingOpen(weir), request -> {
            var user = RequestKeys.header(request, "X-User");
            return switch (request.getServletPath()) {
                case "/health" -> Optional.empty();
                case "/login" -> Optional.of(Check.of("user", user, "login").withOnFailure(OnFailure.DENY));
                case "/route" -> Optional.of(Check.of("user", RequestKeys.route(request)));
                case "/principal" -> Optional.of(Check.of("user", RequestKeys.principal(request)));
                default -> Optional.of(Check.of("user", user, request.getServletPath().substring(1)));
            };
        });
    }

    private void serve(WeirClient weir) throws Exception {
        var context = new ServletContextHandler("/");
        context.addFilter(new FilterHolder(filter(weir)), "/*", EnumSet.of(DispatcherType.REQUEST));
        for (var path : new String[] {"/health", "/login", "/trade", "/principal", "/route"}) {
            context.addServlet(new ServletHolder(new Welcome()), path);
        }
        http.setHandler(context);
        http.start();
    }

    private HttpResponse<String> get(String path) throws Exception {
        return send("GET", path);
    }

    private HttpResponse<String> send(String method, String path) throws Exception {
        var request = HttpRequest.newBuilder(http.getURI().resolve(path))
                .method(method, HttpRequest.BodyPublishers.noBody())
                .header("X-User", "alex")
                .build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    }

    @Test
    void refusesWhatIsTooMuch() throws Exception {
        try (var server = Weir.start(directory); var weir = server.client().build()) {
            serve(weir);
            for (var i = 0; i < 3; i++) {
                var passed = get("/trade");
                assertEquals(200, passed.statusCode());
                assertEquals("welcome", passed.body());
                assertTrue(passed.headers().firstValue("RateLimit").isPresent());
            }
            var refused = get("/trade");
            assertEquals(429, refused.statusCode());
            assertEquals("application/problem+json", refused.headers().firstValue("Content-Type").orElseThrow());
            assertTrue(refused.headers().firstValueAsLong("Retry-After").orElseThrow() > 86_000);
            assertTrue(refused.body().contains("Too Many Requests"));
            assertTrue(get("/health").headers().firstValue("RateLimit").isEmpty());
            assertTrue(get("/principal").headers().firstValue("RateLimit").orElseThrow().endsWith(";r=99"));
        }
    }

    @Test
    void headCountsAsGet() throws Exception {
        try (var server = Weir.start(directory); var weir = server.client().build()) {
            serve(weir);
            var left = 99;
            for (var method : new String[] {"GET", "HEAD", "GET"}) {
                var passed = send(method, "/route");
                assertEquals(200, passed.statusCode());
                assertTrue(passed.headers().firstValue("RateLimit").orElseThrow().endsWith(";r=" + left--), method);
            }
        }
    }

    @Test
    void withoutADecisionRequestsPassUnlessThatIsDangerous() throws Exception {
        try (var nowhere = Weir.nowhere().build()) {
            serve(nowhere);
            assertEquals(200, get("/trade").statusCode());
            var login = get("/login");
            assertEquals(503, login.statusCode());
            assertEquals(1, login.headers().firstValueAsLong("Retry-After").orElseThrow());
        }
    }
}
