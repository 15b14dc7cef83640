package dev.weir.client;

/** The result of one check of a batch: a decision or an error. */
public sealed interface CheckResult {
    /**
     * Returns the decision.
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
     * @param error the reason
     */
    record Failed(WeirException error) implements CheckResult {
        @Override
        public Decision orElseThrow() {
            throw error;
        }
    }
}
