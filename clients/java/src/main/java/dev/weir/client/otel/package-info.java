/** OpenTelemetry metrics and traces. Needs {@code io.opentelemetry:opentelemetry-api}. */
package dev.weir.client.otel;
