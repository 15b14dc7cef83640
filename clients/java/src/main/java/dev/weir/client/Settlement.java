package dev.weir.client;

/**
 * How a reservation was settled.
 *
 * @param charged the units that it cost
 * @param refunded of what was reserved, the units that were given back
 * @param overage the units charged beyond what was reserved
 * @param degraded whether the reservation was made without the shared store, so that settling it changed nothing
 */
public record Settlement(long charged, long refunded, long overage, boolean degraded) {
    static final Settlement OF_NOTHING = new Settlement(0, 0, 0, true);
}
