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
 * @param ca the CA certificates of the service's certificate; empty: those of the JVM
 * @param identity the client's own certificate (mTLS)
 */
public record Tls(Optional<Path> ca, Optional<Identity> identity) {
    /**
     * The client's own certificate.
     *
     * @param cert the certificate and its intermediate certificates
     * @param key its private key, in PKCS #8
     */
    public record Identity(Path cert, Path key) {}

    /**
     * TLS with the CA certificates of the JVM.
     *
     * @return the settings
     */
    public static Tls system() {
        return new Tls(Optional.empty(), Optional.empty());
    }

    /**
     * TLS with a CA of one's own.
     *
     * @param ca the CA certificates
     * @return the settings
     */
    public static Tls trusting(Path ca) {
        return new Tls(Optional.of(ca), Optional.empty());
    }

    /**
     * These settings, with a certificate of the client (mTLS).
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
