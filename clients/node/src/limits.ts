import { duration } from "./duration.js";
import type { Duration } from "./generated/google/protobuf/duration.js";
import { Calendar, Charge, LimitSpec, OnCheck, Start, type DeepPartial, type Limit as LimitMessage } from "./generated/weir/v1/weir.js";

const ENUMS = {
  calendar: { day: Calendar.DAY, week: Calendar.WEEK, month: Calendar.MONTH, year: Calendar.YEAR },
  start: { full: Start.FULL, empty: Start.EMPTY },
  check: { refuse: OnCheck.REFUSE, peek: OnCheck.PEEK },
} as const;
const CHARGES = { "all-or-nothing": Charge.ALL_OR_NOTHING, independent: Charge.INDEPENDENT } as const;

/** A message as callers write it: durations in milliseconds under `…Ms`, names for enums, and optional fields. */
type Plain<Message> = {
  [Field in keyof Message & string as IsDuration<Message[Field]> extends true ? `${Field}Ms` : Field]?: Field extends keyof typeof ENUMS
    ? keyof (typeof ENUMS)[Field]
    : IsDuration<Message[Field]> extends true
      ? number
      : NonNullable<Message[Field]>;
};
type IsDuration<Value> = NonNullable<Value> extends Duration ? true : false;

type Common = "name" | "depth" | "shadow";
type Algorithms = { [Name in Exclude<keyof LimitMessage, Common>]-?: Plain<NonNullable<LimitMessage[Name]>> };

/**
 * One of the client's own limits: exactly one algorithm, as in `{ gcra: { burst: 15, count: 30, periodMs: 60_000 } }`. The names
 * are the names of weir.proto, which documents them; durations are milliseconds under `…Ms`.
 */
export type Limit = {
  /** Shown in answers. */
  name?: string;
  /** Covers the first N segments of the key. Default: the whole key. */
  depth?: number;
  /** Dry run: evaluated and counted, but never refuses. */
  shadow?: boolean;
} & { [Name in keyof Algorithms]: OneOf<Algorithms, Name> }[keyof Algorithms];
type OneOf<All, Name extends keyof All> = Pick<All, Name> & { [Other in Exclude<keyof All, Name>]?: never };

/**
 * The charging rule when one of several limits refuses: charge none (the default), or each one that alone would have allowed the
 * check.
 */
export type ChargeMode = keyof typeof CHARGES;

export function limitSpec(limits: readonly Limit[], charge: ChargeMode = "all-or-nothing"): LimitSpec {
  return LimitSpec.fromPartial({ limits: limits.map(toMessage), charge: CHARGES[charge] });
}

function toMessage(limit: Limit): DeepPartial<LimitMessage> {
  return mapEntries(limit, (name, value) => [name, typeof value === "object" ? mapEntries(value, parameter) : value]);
}

function parameter(name: string, value: unknown): [string, unknown] {
  if (typeof value === "number" && name.endsWith("Ms")) return [name.slice(0, -2), duration(value)];
  if (typeof value === "string" && isEnum(name)) return [name, new Map<string, number>(Object.entries(ENUMS[name])).get(value)];
  return [name, value];
}

function isEnum(name: string): name is keyof typeof ENUMS {
  return name in ENUMS;
}

function mapEntries(of: object | null, map: (name: string, value: unknown) => [string, unknown]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(of ?? {}).map(([name, value]) => map(name, value)));
}
