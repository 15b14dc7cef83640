package dev.weir.client;

/**
 * The settlement of a reservation. Repeated calls get the first one.
 *
 * @param charged the units charged
 * @param refunded the reserved units that were refunded
 * @param overage the units charged beyond the reserved ones
 * @param degraded whether nothing was held, so nothing was settled: the service did not decide, or decided without its
 *     shared store
 */
public record Settlement(long charged, long refunded, long overage, boolean degraded) {
    static final Settlement OF_NOTHING = new Settlement(0, 0, 0, true);
}
