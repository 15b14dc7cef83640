package dev.weir.client.grpc;

import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import java.util.Objects;
import javax.net.ssl.SSLPeerUnverifiedException;

/** Segments of keys, from gRPC calls. */
public final class CallKeys {
    /** The segment of an unknown user: all unknown users share the limits of one. */
    public static final String ANONYMOUS = "anonymous";

    private CallKeys() {}

    /**
     * Returns the subject of the verified client certificate (mTLS). If your own interceptor authenticates users, use
     * the principal that it puts into the context instead.
     *
     * @param call a call
     * @return the distinguished name, or {@link #ANONYMOUS}
     */
    public static String principal(ServerCall<?, ?> call) {
        var session = call.getAttributes().get(Grpc.TRANSPORT_ATTR_SSL_SESSION);
        try {
            return session == null ? ANONYMOUS : session.getPeerPrincipal().getName();
        } catch (SSLPeerUnverifiedException withoutCertificate) {
            return ANONYMOUS;
        }
    }

    /**
     * Returns the value of a header. Use a header that a proxy in front sets, never one that the client sets.
     *
     * @param headers the call's headers
     * @param name the header's name
     * @return its last value, or {@link #ANONYMOUS}
     */
    public static String header(Metadata headers, String name) {
        var value = headers.get(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER));
        return Objects.requireNonNullElse(value, ANONYMOUS);
    }

    /**
     * Returns the called method.
     *
     * @param call a call
     * @return its full name, as in {@code shop.v1.Orders/Place}
     */
    public static String method(ServerCall<?, ?> call) {
        return call.getMethodDescriptor().getFullMethodName();
    }
}
