package dev.weir.client;

import io.grpc.ChannelCredentials;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.Optional;

/**
 * TLS to the service. Files are in PEM, and are read when the client is built.
 *
 * @param ca the CA certificates that verify the service; empty: the JVM's
 * @param identity the client certificate, for mTLS; empty: none
 */
public record Tls(Optional<Path> ca, Optional<Identity> identity) {
    /**
     * The client certificate, for mTLS.
     *
     * @param cert the certificate and its intermediate certificates
     * @param key its private key, in PKCS #8
     */
    public record Identity(Path cert, Path key) {}

    /**
     * Returns TLS with the CA certificates of the JVM.
     *
     * @return the settings
     */
    public static Tls system() {
        return new Tls(Optional.empty(), Optional.empty());
    }

    /**
     * Returns TLS with your own CA.
     *
     * @param ca the CA certificates that verify the service
     * @return the settings
     */
    public static Tls trusting(Path ca) {
        return new Tls(Optional.of(ca), Optional.empty());
    }

    /**
     * Adds a client certificate (mTLS).
     *
     * @param cert the certificate and its intermediate certificates
     * @param key its private key, in PKCS #8
     * @return the settings
     */
    public Tls withIdentity(Path cert, Path key) {
        return new Tls(ca, Optional.of(new Identity(cert, key)));
    }

    ChannelCredentials credentials() {
        var credentials = TlsChannelCredentials.newBuilder();
        try {
            if (ca.isPresent()) {
                credentials.trustManager(ca.get().toFile());
            }
            if (identity.isPresent()) {
                credentials.keyManager(identity.get().cert().toFile(), identity.get().key().toFile());
            }
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
        return credentials.build();
    }
}
