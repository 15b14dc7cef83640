package dev.weir.client.servlet;

import jakarta.servlet.http.HttpServletRequest;
import java.security.Principal;
import java.util.Objects;
import java.util.Optional;

/** Segments of keys, from HTTP requests. */
public final class RequestKeys {
    /** The segment of an unknown user: all unknown users share the limits of one. */
    public static final String ANONYMOUS = "anonymous";

    private RequestKeys() {}

    /**
     * Returns the principal that the container's or Spring Security's authentication has found.
     *
     * @param request a request
     * @return the name of its principal, or {@link #ANONYMOUS}
     */
    public static String principal(HttpServletRequest request) {
        return Optional.ofNullable(request.getUserPrincipal()).map(Principal::getName).orElse(ANONYMOUS);
    }

    /**
     * Returns the value of a header. Use a header that a proxy in front sets, never one that the client sets.
     *
     * @param request a request
     * @param name the header's name
     * @return its first value, or {@link #ANONYMOUS}
     */
    public static String header(HttpServletRequest request, String name) {
        return Objects.requireNonNullElse(request.getHeader(name), ANONYMOUS);
    }

    /**
     * Returns the route as the container maps it, so that users cannot make up new ones: the path of the servlet. Under a
     * servlet for all paths, such as Spring's, this is the whole path. HEAD counts as GET, whose servlet answers it.
     *
     * @param request a request
     * @return the method and the path, as in {@code GET /trade}
     */
    public static String route(HttpServletRequest request) {
        var method = request.getMethod().equals("HEAD") ? "GET" : request.getMethod();
        return method + " " + request.getServletPath();
    }
}
