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

    /** The kind of an error. */
    public enum Kind {
        /** The request is malformed. {@link WeirException#field()} names the invalid field. */
        INVALID_REQUEST,
        /** The credentials (bearer token or client certificate) are missing or not valid. */
        UNAUTHENTICATED,
        /** The client lacks the role, or the domain's policy forbids the check's own limits. */
        PERMISSION_DENIED,
        /** No policy defines the domain; or the reservation is unknown, has expired or, for an extension, is settled. */
        NOT_FOUND,
        /** A limit on the path cannot be reserved, or can only be reserved. */
        FAILED_PRECONDITION,
        /** The server does not know this method: it is older than the client. */
        UNIMPLEMENTED,
        /** The service cannot be reached, shuts down, or cannot decide without its store. */
        UNAVAILABLE,
        /** The service did not answer in time. */
        DEADLINE_EXCEEDED,
        /** The service sheds load. {@link WeirException#retryAfter()} says when to retry. */
        OVERLOADED,
        /** An internal error of the service. */
        INTERNAL,
        /** The call was not sent: the circuit breaker is open after earlier outages. */
        CIRCUIT_OPEN,
        /** The calling thread was interrupted, or the call was cancelled, for instance by a proxy. */
        CANCELLED,
        /** Any other gRPC status, such as UNKNOWN. */
        OTHER;

        private static final Set<Kind> OUTAGES =
                EnumSet.of(UNAVAILABLE, DEADLINE_EXCEEDED, OVERLOADED, INTERNAL, CIRCUIT_OPEN);

        /**
         * Returns whether the error is temporary. {@link OnFailure} applies only to these kinds. All other kinds but
         * {@link #CANCELLED} repeat until the configuration, the policy or the code is corrected.
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

    /** The kind of the error. */
    private final Kind kind;
    /** The invalid field, or null. */
    private final String field;
    /** When to retry, or null. */
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

    /** Returns the error of a unary call or of a whole stream. */
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
        // gRPC reports a write to a connection that has just broken as UNKNOWN.
        var broken = status.getCode() == Status.Code.UNKNOWN && status.getCause() instanceof IOException;
        return broken ? Kind.UNAVAILABLE : Kind.of(status.getCode());
    }

    /** Returns the error of one check of a batch or a stream. */
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

    /** Returns a detail message of google.rpc.Status. */
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
     * Returns the kind of the error.
     *
     * @return its kind
     */
    public Kind kind() {
        return kind;
    }

    /**
     * Returns the invalid field of the request, as in {@code limit_spec.limits[0].gcra.count}.
     *
     * @return its path; empty if the service names none
     */
    public Optional<String> field() {
        return Optional.ofNullable(field);
    }

    /**
     * Returns when to retry, of a service that sheds load.
     *
     * @return the time to wait; empty if the service does not say
     */
    public Optional<Duration> retryAfter() {
        return Optional.ofNullable(retryAfter);
    }
}
