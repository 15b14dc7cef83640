-- Runs one call over anchors. Each anchor is one hash with a field for each state. A field's value is two consecutive
-- MessagePack values: the expiry, and the encoded state as a list (false: none). A state with holds (hold.lua) has its
-- ledger as a third value.
--
-- ARGV[1] is a MessagePack array, written by encode.rs: the time (-1: use this server's clock), the least TTL of a key
-- in milliseconds, the task, and the task's arguments. KEYS are the anchors in order of use.

-- Locals are faster than globals.
local call, pack, unpacked, unpack = redis.call, cmsgpack.pack, cmsgpack.unpack, unpack
local floor, ceil, format = math.floor, math.ceil, string.format

local input, at = unpacked(ARGV[1]), 4
local now, least_ttl, task = input[1], input[2], input[3]
local own_clock = now < 0
if own_clock then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Decoded limits by their encoded rule: the plans of a call share few, so each is decoded once.
local limits = {}
-- Functions of the algorithms in use: step, charge, next_after, how long a state is kept, and undo by mark.
local algorithms = {}
-- Functions of hold.lua, loaded when there are holds.
local holds
-- The current plan's limits, by level.
local rules = {}

-- The current plan. Its levels are not copied from the input but addressed by column: the value of a level is at the
-- column's start plus the level's number. Copies, tables and function calls dominate the time of a call.
local count, charge, over_limit_only, dry_run, max_wait, one_key, records_key, duplicates, charged_at
local keys_at, fields_at, limits_at, costs_at, phases_at, states_at
-- For an undo: the columns of the values before the plan, the values that it wrote, and the units that it charged.
local befores_at, afters_at, charged_units_at
-- The plan's renewal, or its reservation as {name, step, units or time}; nil: none.
local renewal, reservation
-- The request's id as {name, fingerprint, retention time, digest of the levels, whether the domain is in shadow mode};
-- nil: none. And whether it claims the charges of an earlier
-- attempt.
local request, claims_charges
-- States and their reset times by state index, decisions and next states by level, and whether a state changed. `false`
-- stands for none, which keeps the arrays dense.
local states, resets, decisions, next_states, changed = {}, {}, {}, {}, false
-- By state index, the total cost of all levels that share the state, if any do.
local totals = {}
-- Stored values: before the plan, after it, and in between, after the non-shadow levels were charged. For plans that
-- report their changes.
local found, written, counted = {}, {}, {}
-- By level, the ledgers as hold.lua takes them, if there are holds; false if there are none.
local levels = false
-- By level, 1 if its charge could not be undone; or the units of an outage charge.
local left_charged = {}
-- Whether the plan has written anything, in which case an error does not count as a rejection.
local wrote = false
local key_count = 0

-- A cache of the previous plan's hash as that plan left it: its fields, their states and ledgers in the order of its
-- levels, and the TTL in milliseconds (false: unknown). Redis runs no other command during a script, and checks of a
-- hot key arrive together, so most of them read nothing.
local cached_hash, cached_count, cached_fields, cached_states, cached_levels, cached_left = false, 0, {}, {}, {}, false

-- In addition to its plans, a call spends most time on creating closures, each of which resolves its upvalues in the
-- enclosing function. They are therefore created in one function that has captured the above once, and rarely used ones
-- only on demand.
