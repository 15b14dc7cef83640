/**
 * Java client of Weir, the rate-limit service.
 *
 * <p>{@link dev.weir.client.WeirClient} sends checks, {@link dev.weir.client.Check} describes one, and
 * {@link dev.weir.client.Decision} is its answer. A refusal is a decision, not an error. A
 * {@link dev.weir.client.WeirException} means that the service did not decide, or that a settlement or reset failed.
 */
package dev.weir.client;
