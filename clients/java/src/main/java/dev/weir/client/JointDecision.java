package dev.weir.client;

import java.util.List;

/**
 * The answer to {@link WeirClient#checkAll}: the checks pass together or not at all.
 *
 * @param allowed whether all checks pass and are charged; if not, none is
 * @param decisions one for each check, in their order: the decision of its own limits
 */
public record JointDecision(boolean allowed, List<Decision> decisions) {}
