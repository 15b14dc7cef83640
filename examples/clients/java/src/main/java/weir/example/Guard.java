package weir.example;

import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import weir.v1.Weir.CheckResponse;

/**
 * A servlet filter (Spring Boot, Jakarta EE, Jetty, Tomcat): checks each request with Weir, answers refusals with 429,
 * and returns rate-limit headers. Without a decision requests pass (fail open).
 */
public class Guard implements Filter {
    private final WeirClient weir;
    private final Function<HttpServletRequest, List<String>> key;
    private final Set<String> failClosed;

    /**
     * The key is what a request counts for, root first; empty where it is not limited. Keys whose last segment is in failClosed
     * are refused while there is no decision, since to try them without end would be worse.
     */
    public Guard(WeirClient weir, Function<HttpServletRequest, List<String>> key, Set<String> failClosed) {
        this.weir = weir;
        this.key = key;
        this.failClosed = failClosed;
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain next)
            throws IOException, ServletException {
        var segments = key.apply((HttpServletRequest) request);
        if (segments.isEmpty()) {
            next.doFilter(request, response);
            return;
        }
        var http = (HttpServletResponse) response;
        var answer = weir.check(segments);
        if (answer.isEmpty() && failClosed.contains(segments.get(segments.size() - 1))) {
            http.setHeader("Retry-After", "1");
            refuse(http, 503, "Service Unavailable");
            return;
        }
        answer.ifPresent(decision -> setHeaders(http, decision));
        if (answer.isPresent() && !answer.get().getAllowed()) {
            refuse(http, 429, "Too Many Requests");
            return;
        }
        next.doFilter(request, response);
    }

    private static void refuse(HttpServletResponse response, int status, String title) throws IOException {
        response.setStatus(status);
        response.setContentType("application/problem+json");
        response.getWriter().printf("{\"title\": \"%s\", \"status\": %d}", title, status);
    }

    /** What the limit that binds tells, as draft-ietf-httpapi-ratelimit-headers-11 has it. Nothing where nothing is limited. */
    private static void setHeaders(HttpServletResponse response, CheckResponse answer) {
        if (!answer.hasBinding()) {
            return;
        }
        var level = answer.getLevels(answer.getBinding());
        var name = structuredString(level.getName());
        var left = name + ";r=" + level.getRemaining();
        if (level.hasRetryAfter()) {
            var retry = Math.max(1, wholeSeconds(level.getRetryAfter()));
            response.setHeader("Retry-After", Long.toString(retry));
        }
        if (level.hasNextAfter()) {
            left += ";t=" + Math.max(1, wholeSeconds(level.getNextAfter()));
        }
        response.setHeader("RateLimit-Policy", name + ";q=" + level.getLimit());
        response.setHeader("RateLimit", left);
    }

    /** Rounded up: who comes back then is not early. */
    private static long wholeSeconds(com.google.protobuf.Duration duration) {
        return duration.getSeconds() + Integer.signum(duration.getNanos());
    }

    /** A string of RFC 9651, which holds printable ASCII alone; the rest is percent-encoded. */
    private static String structuredString(String text) {
        var string = new StringBuilder("\"");
        for (byte letter : text.getBytes(StandardCharsets.UTF_8)) {
            if (letter < ' ' || letter > '~' || letter == '%') {
                string.append(String.format("%%%02X", letter));
            } else {
                string.append(letter == '"' || letter == '\\' ? "\\" : "").append((char) letter);
            }
        }
        return string.append('"').toString();
    }
}
