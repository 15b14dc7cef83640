package dev.weir.client;

import java.util.Map;
import java.util.Optional;

/**
 * What a server does with a request.
 *
 * @param passes whether the request passes
 * @param status the HTTP status of the answer: 200 if the request passes; if not 429, or 503 if the service did not decide,
 *     or the request ended while it waited
 * @param headers the headers to add to the answer, also if the request passes
 * @param body a problem document (RFC 9457) if the request does not pass; otherwise empty
 * @param decision the service's decision; empty with 503, and if it did not decide
 */
public record Verdict(
        boolean passes, int status, Map<String, String> headers, String body, Optional<Decision> decision) {
    private static final String PROBLEM =
            "{\"type\": \"https://iana.org/assignments/http-problem-types#%s\", \"title\": \"%s\", \"status\": %d}";

    static Verdict pass(Map<String, String> headers, Optional<Decision> decision) {
        return new Verdict(true, 200, headers, "", decision);
    }

    static Verdict refused(Map<String, String> headers, Decision decision) {
        var body = PROBLEM.formatted("quota-exceeded", "Too Many Requests", 429);
        return new Verdict(false, 429, headers, body, Optional.of(decision));
    }

    static Verdict undecided(Map<String, String> headers) {
        var body = PROBLEM.formatted("temporary-reduced-capacity", "Service Unavailable", 503);
        return new Verdict(false, 503, headers, body, Optional.empty());
    }
}
