package dev.weir.client;

import java.util.Map;
import java.util.Optional;

/**
 * What a server does with a request.
 *
 * @param passes whether it handles the request
 * @param status of a request that does not pass: 429, or 503 where the service did not decide; 200 of one that passes
 * @param headers what to add to the answer, also of a request that passes
 * @param body a problem document (RFC 9457) of a request that does not pass; otherwise empty
 * @param decision the service's decision, if there is one
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
