/** OpenTelemetry metrics and spans. Needs {@code io.opentelemetry:opentelemetry-api}. */
package dev.weir.client.otel;
