package dev.weir.client;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.BadRequest;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.io.IOException;
import java.io.Serial;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Optional;
import java.util.Set;
import weir.v1.Weir;

/** The service did not decide, or a settlement or reset failed. */
public final class WeirException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 1;

    /** What went wrong. */
    public enum Kind {
        /** The request is not valid; {@link WeirException#field()} names what is wrong. */
        INVALID_REQUEST,
        /** No valid credentials. */
        UNAUTHENTICATED,
        /** The client's role does not allow this call, or the domain's policy forbids limits of the caller's own. */
        PERMISSION_DENIED,
        /** No policy defines the domain; or the reservation is settled, expired or unknown. */
        NOT_FOUND,
        /** A limit on the path cannot be checked or reserved like this. */
        FAILED_PRECONDITION,
        /** The server does not know this call: it is older than the client. */
        UNIMPLEMENTED,
        /** The server or its store cannot be reached. */
        UNAVAILABLE,
        /** No answer before the deadline. */
        DEADLINE_EXCEEDED,
        /** The server sheds load. */
        OVERLOADED,
        /** The server failed. */
        INTERNAL,
        /** The circuit breaker is open: the last calls failed, and this one was not sent. */
        CIRCUIT_OPEN,
        /** The calling thread was interrupted. */
        CANCELLED,
        /** Any other status of gRPC, such as UNKNOWN. */
        OTHER;

        private static final Set<Kind> OUTAGES =
                EnumSet.of(UNAVAILABLE, DEADLINE_EXCEEDED, OVERLOADED, INTERNAL, CIRCUIT_OPEN);

        /**
         * Whether it passes by itself. All other kinds but {@link #CANCELLED} repeat until the caller, the configuration
         * or the policy changes.
         *
         * @return whether this is an outage
         */
        public boolean isOutage() {
            return OUTAGES.contains(this);
        }

        private static Kind of(Status.Code code) {
            return switch (code) {
                case INVALID_ARGUMENT, OUT_OF_RANGE -> INVALID_REQUEST;
                case UNAUTHENTICATED -> UNAUTHENTICATED;
                case PERMISSION_DENIED -> PERMISSION_DENIED;
                case NOT_FOUND -> NOT_FOUND;
                case FAILED_PRECONDITION -> FAILED_PRECONDITION;
                case UNIMPLEMENTED -> UNIMPLEMENTED;
                case UNAVAILABLE -> UNAVAILABLE;
                case DEADLINE_EXCEEDED -> DEADLINE_EXCEEDED;
                case RESOURCE_EXHAUSTED -> OVERLOADED;
                case CANCELLED -> CANCELLED;
                case INTERNAL -> INTERNAL;
                default -> OTHER;
            };
        }
    }

    /** What went wrong. */
    private final Kind kind;
    /** The invalid field, or null. */
    private final String field;
    /** When to call again, or null. */
    private final Duration retryAfter;

    private WeirException(Kind kind, String message, String field, Duration retryAfter, Throwable cause) {
        super(message, cause);
        this.kind = kind;
        this.field = field;
        this.retryAfter = retryAfter;
    }

    WeirException(Kind kind, String message) {
        this(kind, message, null, null, null);
    }

    /** The error of a unary call or of a whole stream. */
    static WeirException of(Throwable failure) {
        if (failure instanceof WeirException known) {
            return known;
        }
        var status = Status.fromThrowable(failure);
        var message = status.getDescription() == null ? status.getCode().name() : status.getDescription();
        return new WeirException(
                kind(status), message, invalidField(failure), retryAfter(failure), failure);
    }

    private static Kind kind(Status status) {
        // To write to a connection that has just broken is UNKNOWN to gRPC.
        var broken = status.getCode() == Status.Code.UNKNOWN && status.getCause() instanceof IOException;
        return broken ? Kind.UNAVAILABLE : Kind.of(status.getCode());
    }

    /** The error of one check in a batch or a stream. */
    static WeirException of(Weir.Error error) {
        var field = error.getField().isEmpty() ? null : error.getField();
        var kind = Kind.of(Status.fromCodeValue(error.getCode()).getCode());
        return new WeirException(kind, error.getMessage(), field, null, null);
    }

    private static String invalidField(Throwable failure) {
        return detail(failure, BadRequest.class)
                .filter(request -> request.getFieldViolationsCount() > 0)
                .map(request -> request.getFieldViolations(0).getField())
                .orElse(null);
    }

    private static Duration retryAfter(Throwable failure) {
        return detail(failure, RetryInfo.class).map(info -> Wire.duration(info.getRetryDelay())).orElse(null);
    }

    /** One of the messages in google.rpc.Status that explain a failure. */
    private static <M extends Message> Optional<M> detail(Throwable failure, Class<M> type) {
        var status = StatusProto.fromThrowable(failure);
        if (status != null) {
            for (var detail : status.getDetailsList()) {
                if (detail.is(type)) {
                    try {
                        return Optional.of(detail.unpack(type));
                    } catch (InvalidProtocolBufferException unreadable) {
                        return Optional.empty();
                    }
                }
            }
        }
        return Optional.empty();
    }

    /**
     * What went wrong.
     *
     * @return its kind
     */
    public Kind kind() {
        return kind;
    }

    /**
     * The invalid field of the request, as in {@code limit_spec.limits[0].gcra.count}.
     *
     * @return its path, if the service names one
     */
    public Optional<String> field() {
        return Optional.ofNullable(field);
    }

    /**
     * When a server that sheds load wants to be called again.
     *
     * @return after what time, if the service says so
     */
    public Optional<Duration> retryAfter() {
        return Optional.ofNullable(retryAfter);
    }
}
