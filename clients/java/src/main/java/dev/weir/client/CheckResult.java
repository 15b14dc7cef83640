package dev.weir.client;

/** How one check of several ended: with a decision, or without. */
public sealed interface CheckResult {
    /**
     * The decision.
     *
     * @return the decision
     * @throws WeirException if there is none
     */
    Decision orElseThrow();

    /**
     * There is a decision.
     *
     * @param decision the decision
     */
    record Decided(Decision decision) implements CheckResult {
        @Override
        public Decision orElseThrow() {
            return decision;
        }
    }

    /**
     * The service did not decide.
     *
     * @param error why
     */
    record Failed(WeirException error) implements CheckResult {
        @Override
        public Decision orElseThrow() {
            throw error;
        }
    }
}
