package dev.weir.client;

import io.grpc.EquivalentAddressGroup;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.Attributes;
import io.grpc.Status;
import io.grpc.StatusOr;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Executor;

/** Resolves {@code weir:///host:port,host:port}, the addresses of several replicas. gRPC loads it as a service provider. */
public final class AddressListProvider extends NameResolverProvider {
    private static final String SCHEME = "weir";
    private static final int DEFAULT_PORT = 8081;

    /** Called by {@link java.util.ServiceLoader}. */
    public AddressListProvider() {}

    /** Returns the gRPC target: a list of addresses becomes a name for this resolver. */
    static String target(String target) {
        if (!target.contains(",")) {
            return target;
        }
        try {
            // URI quotes the brackets of IPv6 addresses, which are not allowed in a path.
            return new URI(SCHEME, "", "/" + target, null, null).toString();
        } catch (URISyntaxException malformed) {
            throw new IllegalArgumentException(malformed);
        }
    }

    @Override
    protected boolean isAvailable() {
        return true;
    }

    @Override
    protected int priority() {
        return 5;
    }

    @Override
    public String getDefaultScheme() {
        return SCHEME;
    }

    @Override
    public Collection<Class<? extends SocketAddress>> getProducedSocketAddressTypes() {
        return Set.of(InetSocketAddress.class);
    }

    @Override
    public NameResolver newNameResolver(URI target, NameResolver.Args args) {
        if (!SCHEME.equals(target.getScheme())) {
            return null;
        }
        var addresses = Arrays.stream(target.getPath().substring(1).split(",")).map(String::strip).toList();
        return new AddressListResolver(addresses, args.getOffloadExecutor());
    }

    private static final class AddressListResolver extends NameResolver {
        private final List<String> addresses;
        private final Executor offload;
        private Listener2 listener;

        AddressListResolver(List<String> addresses, Executor offload) {
            this.addresses = addresses;
            this.offload = offload;
        }

        @Override
        public String getServiceAuthority() {
            return addresses.get(0);
        }

        @Override
        public void start(Listener2 started) {
            listener = started;
            refresh();
        }

        @Override
        public void refresh() {
            // The lookup of a name may block.
            offload.execute(() -> listener.onResult(ResolutionResult.newBuilder()
                    .setAddressesOrError(resolve())
                    .build()));
        }

        /** Unknown names are ignored, unless all are unknown. */
        private StatusOr<List<EquivalentAddressGroup>> resolve() {
            var groups = new ArrayList<EquivalentAddressGroup>();
            for (var address : addresses) {
                var uri = URI.create("weir://" + address);
                var port = uri.getPort() < 0 ? DEFAULT_PORT : uri.getPort();
                var authority = Attributes.newBuilder()
                        .set(EquivalentAddressGroup.ATTR_AUTHORITY_OVERRIDE, address)
                        .build();
                try {
                    for (var host : InetAddress.getAllByName(uri.getHost())) {
                        groups.add(new EquivalentAddressGroup(new InetSocketAddress(host, port), authority));
                    }
                } catch (UnknownHostException unknown) {
                    continue;
                }
            }
            return groups.isEmpty()
                    ? StatusOr.fromStatus(Status.UNAVAILABLE.withDescription("no address of " + addresses + " is known"))
                    : StatusOr.fromValue(groups);
        }

        @Override
        public void shutdown() {}
    }
}
