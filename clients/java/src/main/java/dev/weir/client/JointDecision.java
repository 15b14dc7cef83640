package dev.weir.client;

import java.util.List;

/**
 * The answer to checks that pass together or not at all.
 *
 * @param allowed whether all may pass, and are charged; otherwise none is
 * @param decisions one for each check, in their order: what its own limits say
 */
public record JointDecision(boolean allowed, List<Decision> decisions) {}
