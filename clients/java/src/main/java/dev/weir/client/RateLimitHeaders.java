package dev.weir.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** The headers of draft-ietf-httpapi-ratelimit-headers-11, as the service itself sends them. */
final class RateLimitHeaders {
    private static final int MAX_NAME_LENGTH = 256;

    private RateLimitHeaders() {}

    /** What the binding level tells. Empty where nothing is limited. */
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

    /** Rounded up, so that a client that waits is not early. */
    private static long wholeSeconds(Duration duration) {
        return Math.max(1, duration.getSeconds() + Integer.signum(duration.getNano()));
    }

    /** A string of RFC 9651, which holds printable ASCII alone; the rest is percent-encoded. */
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
