package dev.weir.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** The headers of draft-ietf-httpapi-ratelimit-headers-11, as the service itself sends them over HTTP. */
final class RateLimitHeaders {
    private static final int MAX_NAME_LENGTH = 256;

    private RateLimitHeaders() {}

    /** Returns the headers of the binding limit, and Retry-After. Without a binding limit at most Retry-After. */
    static Map<String, String> of(Decision decision) {
        var headers = new LinkedHashMap<String, String>();
        decision.binding().ifPresent(level -> {
            var name = structuredString(level.name());
            var next = level.nextAfter().map(after -> ";t=" + wholeSeconds(after)).orElse("");
            headers.put("RateLimit-Policy", name + ";q=" + level.limit());
            headers.put("RateLimit", name + ";r=" + level.remaining() + next);
        });
        decision.retryAfter().ifPresent(after -> headers.putAll(retryAfter(after)));
        return headers;
    }

    static Map<String, String> retryAfter(Duration duration) {
        return Map.of("Retry-After", Long.toString(wholeSeconds(duration)));
    }

    /** Rounds up, to at least 1, so that a client that waits this long is not early. */
    private static long wholeSeconds(Duration duration) {
        return Math.max(1, duration.getSeconds() + Integer.signum(duration.getNano()));
    }

    /** Encodes a string of RFC 9651, which allows only printable ASCII; all other bytes, and %, are percent-encoded. */
    private static String structuredString(String text) {
        var string = new StringBuilder("\"");
        var length = Math.min(text.codePointCount(0, text.length()), MAX_NAME_LENGTH);
        var shortened = text.substring(0, text.offsetByCodePoints(0, length));
        for (var letter : shortened.getBytes(StandardCharsets.UTF_8)) {
            if (letter < ' ' || letter > '~' || letter == '%') {
                string.append("%%%02X".formatted(letter));
            } else {
                string.append(letter == '"' || letter == '\\' ? "\\" : "").append((char) letter);
            }
        }
        return string.append('"').toString();
    }
}
