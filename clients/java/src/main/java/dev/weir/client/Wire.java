package dev.weir.client;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Optional;
import weir.v1.Weir;
import weir.v1.Weir.CheckResponse;
import weir.v1.Weir.LevelResult;

/** Converts between the protocol's messages and the types of this package. */
final class Wire {
    private Wire() {}

    /** Truncates to whole microseconds: the service rejects finer durations. */
    static com.google.protobuf.Duration duration(Duration duration) {
        var whole = duration.truncatedTo(ChronoUnit.MICROS);
        return com.google.protobuf.Duration.newBuilder()
                .setSeconds(whole.getSeconds())
                .setNanos(whole.getNano())
                .build();
    }

    static Duration duration(com.google.protobuf.Duration message) {
        return Duration.ofSeconds(message.getSeconds(), message.getNanos());
    }

    private static Optional<Duration> duration(boolean present, com.google.protobuf.Duration message) {
        return present ? Optional.of(duration(message)) : Optional.empty();
    }

    private static Optional<String> text(String text) {
        return text.isEmpty() ? Optional.empty() : Optional.of(text);
    }

    static Weir.Charge charge(Charge charge) {
        return switch (charge) {
            case ALL_OR_NOTHING -> Weir.Charge.CHARGE_ALL_OR_NOTHING;
            case INDEPENDENT -> Weir.Charge.CHARGE_INDEPENDENT;
        };
    }

    static Weir.OnExpiry onExpiry(OnExpiry onExpiry) {
        return switch (onExpiry) {
            case KEEP -> Weir.OnExpiry.ON_EXPIRY_KEEP;
            case RELEASE -> Weir.OnExpiry.ON_EXPIRY_RELEASE;
        };
    }

    static Decision decision(CheckResponse response) {
        var levels = response.getLevelsList().stream().map(Wire::level).toList();
        Optional<Level> binding = response.hasBinding() && response.getBinding() < levels.size()
                ? Optional.of(levels.get(response.getBinding()))
                : Optional.empty();
        return new Decision(
                response.getAllowed(),
                response.getLimit(),
                response.getRemaining(),
                duration(response.hasRetryAfter(), response.getRetryAfter()),
                duration(response.getResetAfter()),
                duration(response.getWait()),
                response.getNever(),
                response.getDegraded(),
                response.getLeased(),
                response.getRepeatedRequest(),
                duration(response.hasNextAfter(), response.getNextAfter()),
                binding,
                levels,
                text(response.getOverride()),
                text(response.getBanReason()),
                Source.SERVICE,
                Optional.empty());
    }

    private static Level level(LevelResult level) {
        return new Level(
                level.getName(),
                level.getDepth(),
                level.getShadow(),
                level.getAllowed(),
                level.getLimit(),
                level.getRemaining(),
                duration(level.hasRetryAfter(), level.getRetryAfter()),
                duration(level.getResetAfter()),
                duration(level.getWait()),
                level.getNever(),
                duration(level.hasNextAfter(), level.getNextAfter()));
    }
}
