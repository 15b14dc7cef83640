import type { Duration } from "./generated/google/protobuf/duration.js";

/** A duration of the wire in milliseconds, with the microseconds as fractions. */
export function milliseconds(duration: Duration): number {
  return duration.seconds * 1_000 + duration.nanos / 1_000_000;
}

export function millisecondsOrNull(duration: Duration | undefined): number | null {
  return duration ? milliseconds(duration) : null;
}

/** A duration of the wire in whole microseconds. */
export function microseconds(duration: Duration | undefined): number {
  return duration ? duration.seconds * 1_000_000 + Math.floor(duration.nanos / 1_000) : 0;
}

/** Milliseconds as a duration of the wire, in whole microseconds: the service takes no finer ones. */
export function duration(ms: number): Duration {
  const us = Math.round(ms * 1_000);
  const seconds = Math.trunc(us / 1_000_000);
  return { seconds, nanos: (us - seconds * 1_000_000) * 1_000 };
}
