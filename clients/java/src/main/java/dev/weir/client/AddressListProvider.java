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
import java.util.regex.Pattern;

/** Resolves {@code weir:///host:port,host:port}, the addresses of several replicas. gRPC loads it as a service provider. */
public final class AddressListProvider extends NameResolverProvider {
    private static final String SCHEME = "weir";
    private static final int DEFAULT_PORT = 8081;
    /** Not parsed as a URI: {@link URI} accepts no {@code _} in a host name, as Compose and Active Directory have. */
    private static final Pattern ADDRESS =
            Pattern.compile("(?<host>[\\w.-]+|\\[[0-9A-Fa-f:.]+(%[\\w.-]+)?])(:(?<port>\\d{1,5}))?");

    /** Called by {@link java.util.ServiceLoader}. */
    public AddressListProvider() {}

    /** Returns the gRPC target: a list of addresses, or a host name that gRPC rejects, becomes a name for this resolver. */
    static String target(String target) {
        if (!target.contains(",") && !(target.contains("_") && ADDRESS.matcher(target).matches())) {
            return target;
        }
        entries(target).forEach(AddressListProvider::address);
        try {
            // URI quotes the brackets of IPv6 addresses, which are not allowed in a path.
            return new URI(SCHEME, "", "/" + target, null, null).toString();
        } catch (URISyntaxException malformed) {
            throw new IllegalArgumentException(malformed);
        }
    }

    private static List<String> entries(String list) {
        return Arrays.stream(list.split(",", -1)).map(String::strip).toList();
    }

    /** Returns the host and the port of an entry. */
    static InetSocketAddress address(String entry) {
        var parts = ADDRESS.matcher(entry);
        if (parts.matches()) {
            var port = parts.group("port") == null ? DEFAULT_PORT : Integer.parseInt(parts.group("port"));
            if (port > 0 && port <= 0xFFFF) {
                return InetSocketAddress.createUnresolved(parts.group("host"), port);
            }
        }
        throw new IllegalArgumentException("\"" + entry + "\" in the list of addresses is not host:port or [IPv6 address]:port");
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
        return new AddressListResolver(entries(target.getPath().substring(1)), args.getOffloadExecutor());
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
                var parsed = address(address);
                var authority = Attributes.newBuilder()
                        .set(EquivalentAddressGroup.ATTR_AUTHORITY_OVERRIDE, address)
                        .build();
                try {
                    for (var host : InetAddress.getAllByName(parsed.getHostString())) {
                        groups.add(new EquivalentAddressGroup(new InetSocketAddress(host, parsed.getPort()), authority));
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
