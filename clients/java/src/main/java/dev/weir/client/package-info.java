/**
 * Client of the rate-limit service Weir.
 *
 * <p>{@link dev.weir.client.WeirClient} sends checks, {@link dev.weir.client.Check} describes one, and
 * {@link dev.weir.client.Decision} is its answer. A refusal is a decision, never an exception.
 * {@link dev.weir.client.WeirException} says why there is no decision.
 */
package dev.weir.client;
