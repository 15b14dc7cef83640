/**
 * Client of the rate-limit service Weir.
 *
 * <p>{@link dev.weir.client.WeirClient} sends checks, {@link dev.weir.client.Check} describes one, and
 * {@link dev.weir.client.Decision} is its answer. A refusal is a decision, never an exception.
 * {@link dev.weir.client.WeirException} says why the service did not decide.
 */
package dev.weir.client;
