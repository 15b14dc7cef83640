import type { Duration } from "./generated/google/protobuf/duration.js";

/** Converts a protobuf Duration to milliseconds, with fractions for microseconds. */
export function milliseconds(duration: Duration): number {
  return duration.seconds * 1_000 + duration.nanos / 1_000_000;
}

export function millisecondsOrNull(duration: Duration | undefined): number | null {
  return duration ? milliseconds(duration) : null;
}

/** Converts a protobuf Duration to whole microseconds, rounded down. */
export function microseconds(duration: Duration | undefined): number {
  return duration ? duration.seconds * 1_000_000 + Math.floor(duration.nanos / 1_000) : 0;
}

/** Converts milliseconds to a protobuf Duration in whole microseconds: the service rejects finer ones. */
export function duration(ms: number): Duration {
  const us = Math.round(ms * 1_000);
  const seconds = Math.trunc(us / 1_000_000);
  return { seconds, nanos: (us - seconds * 1_000_000) * 1_000 };
}
