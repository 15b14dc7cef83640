package dev.weir.client.grpc;

import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import java.util.Objects;
import javax.net.ssl.SSLPeerUnverifiedException;

/** Segments of keys, from calls. */
public final class CallKeys {
    /** What stands for a caller who is not known: all such callers share the limits of one. */
    public static final String ANONYMOUS = "anonymous";

    private CallKeys() {}

    /**
     * The caller's certificate (mTLS). Where an interceptor of your own authenticates callers, take what it puts into the
     * context instead.
     *
     * @param call a call
     * @return the distinguished name of its subject, or {@link #ANONYMOUS}
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
     * The value of a header. A caller may send what he likes: take one that a proxy in front sets.
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
     * The method.
     *
     * @param call a call
     * @return its full name, as in {@code shop.v1.Orders/Place}
     */
    public static String method(ServerCall<?, ?> call) {
        return call.getMethodDescriptor().getFullMethodName();
    }
}
