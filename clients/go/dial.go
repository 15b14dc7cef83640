package weir

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// The resolver scheme for a list of addresses.
const listScheme = "weir"

var dialOptions = []grpc.DialOption{
	// Balance over every replica behind a DNS name (a headless service in Kubernetes).
	grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
	// A retry policy in DNS records would charge twice. The retries of this package do not.
	grpc.WithDisableServiceConfig(),
	// Larger than any answer: a batch of 1,000 checks with 16 levels of the longest names.
	grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32 << 20)),
	grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
	// Keep idle connections, so that no check waits for a new one.
	grpc.WithIdleTimeout(0),
	// gRPC's default backoff grows to two minutes: after an outage nothing would be limited for that long.
	grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: time.Second,
	}),
}

// dial also returns the token that calls carry; nil if there is none.
func dial(target string, c *config) (*grpc.ClientConn, *token, error) {
	options := dialOptions[:len(dialOptions):len(dialOptions)]
	transport, err := transportCredentials(c.tls)
	if err != nil {
		return nil, nil, err
	}
	options = append(options, grpc.WithTransportCredentials(transport))
	bearer, err := newToken(c)
	if err != nil {
		return nil, nil, err
	}
	if bearer != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer))
	}
	if strings.Contains(target, ",") {
		list, err := newList(target, c.tls)
		if err != nil {
			return nil, nil, err
		}
		options = append(options, grpc.WithResolvers(list))
		target = listScheme + ":///" + target
	}
	conn, err := grpc.NewClient(target, append(options, c.dialOption...)...)
	return conn, bearer, err
}

// newList builds a resolver that resolves host:port,host:port to all of these addresses.
func newList(target string, files *TLS) (resolver.Builder, error) {
	name := ""
	if files != nil {
		name = files.ServerName
	}
	var state resolver.State
	for address := range strings.SplitSeq(target, ",") {
		address = strings.TrimSpace(address)
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
		// Also the :authority of calls, in which an IPv6 address needs its brackets. TLS verifies its host part.
		one := resolver.Address{Addr: address, ServerName: cmp.Or(name, address)}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{one}})
	}
	list := manual.NewBuilderWithScheme(listScheme)
	list.InitialState(state)
	return list, nil
}

func transportCredentials(files *TLS) (credentials.TransportCredentials, error) {
	if files == nil {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{ServerName: files.ServerName}
	if files.CA != "" {
		pem, err := os.ReadFile(files.CA)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS: %s has no certificate in PEM", files.CA)
		}
	}
	if files.Cert != "" || files.Key != "" {
		// A wrong file fails at start; a renewed certificate is used by the next connection.
		if _, err := tls.LoadX509KeyPair(files.Cert, files.Key); err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
			return &pair, err
		}
	}
	return credentials.NewTLS(config), nil
}
