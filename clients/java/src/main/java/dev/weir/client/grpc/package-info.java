/** Guards grpc-java servers. */
package dev.weir.client.grpc;
