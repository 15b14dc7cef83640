package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetSocketAddress;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Over a list of addresses that work: {@link OutageTest}, {@link SecurityTest}. */
class AddressListTest {
    @ParameterizedTest
    @CsvSource({
        "weir_1:9000, weir_1, 9000",
        "weir_1, weir_1, 8081",
        "weir-1.example.com:1, weir-1.example.com, 1",
        "127.0.0.1:65535, 127.0.0.1, 65535",
        "[::1]:9000, [::1], 9000",
        "[fe80::1%eth0], [fe80::1%eth0], 8081"
    })
    void anAddressHasAHostAndAPort(String entry, String host, int port) {
        assertEquals(InetSocketAddress.createUnresolved(host, port), AddressListProvider.address(entry));
    }

    @ParameterizedTest
    @CsvSource({"weir_1:9000, true", "weir_1, true", "weir-1:9000, false", "dns:///weir_1:9000, false", "unix:weir_1, false"})
    void aHostNameThatGrpcRejectsIsResolvedHere(String target, boolean isResolvedHere) {
        assertEquals(isResolvedHere, AddressListProvider.target(target).startsWith("weir:"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", ":1", "h:", "h:x", "h:0", "h:65536", "::1:1", "[::1", "[h]:1", "dns:///h:1", "u@h:1", "h h:1"})
    void aMalformedAddressFailsTheBuild(String malformed) {
        var error = assertThrows(IllegalArgumentException.class, () -> Weir.client("127.0.0.1:1," + malformed).build());
        assertTrue(error.getMessage().contains('"' + malformed + '"'), error::getMessage);
    }
}
