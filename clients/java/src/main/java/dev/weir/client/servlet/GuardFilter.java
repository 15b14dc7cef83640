package dev.weir.client.servlet;

import dev.weir.client.Check;
import dev.weir.client.Guard;
import dev.weir.client.Verdict;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;

/**
 * A servlet filter that checks each request: refused requests are answered with 429, and all responses get rate-limit
 * headers. In Spring Boot make it a bean. A check, and its wait with {@link Check#withMaxWait}, block the request's thread.
 */
public final class GuardFilter implements Filter {
    private final Guard guard;
    private final Function<HttpServletRequest, Optional<Check>> check;

    /**
     * Guards requests.
     *
     * @param guard decides
     * @param check the check of a request; empty: the request is not limited. {@link RequestKeys} has common segments of
     *     keys.
     */
    public GuardFilter(Guard guard, Function<HttpServletRequest, Optional<Check>> check) {
        this.guard = Objects.requireNonNull(guard);
        this.check = Objects.requireNonNull(check);
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain next)
            throws IOException, ServletException {
        // Forwards and error dispatches belong to a request that was checked already.
        if (request.getDispatcherType() == DispatcherType.REQUEST
                && request instanceof HttpServletRequest http
                && response instanceof HttpServletResponse answer) {
            var verdict = check.apply(http).map(guard::judge);
            verdict.ifPresent(decided -> decided.headers().forEach(answer::setHeader));
            if (verdict.isPresent() && !verdict.get().passes()) {
                refuse(answer, verdict.get());
                return;
            }
        }
        next.doFilter(request, response);
    }

    private static void refuse(HttpServletResponse answer, Verdict verdict) throws IOException {
        answer.setStatus(verdict.status());
        answer.setContentType("application/problem+json");
        answer.getOutputStream().write(verdict.body().getBytes(StandardCharsets.UTF_8));
    }
}
