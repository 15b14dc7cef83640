-- Carries out one call over anchors, each of which is one hash: a field for each state, whose value is two MessagePack
-- values in a row, the moment at which the state means nothing any more and the list of its words (false: none). Where units
-- are held of it (hold.lua), its ledger is a third.
--
-- ARGV[1] is a MessagePack array, written by encode.rs: the moment (-1: this server's), the least time to live of a key in
-- milliseconds, what to do, and then what that takes. KEYS are the anchors in the order in which they are used.

-- Globals are slower than these.
local call, pack, unpacked, unpack = redis.call, cmsgpack.pack, cmsgpack.unpack, unpack
local floor, ceil, format = math.floor, math.ceil, string.format

local input, at = unpacked(ARGV[1]), 4
local now, least_ttl, task = input[1], input[2], input[3]
local own_clock = now < 0
if own_clock then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The plans of one call share few limits, so each is read once.
local limits = {}
-- The functions of the algorithms met so far: of each its step, its charge, its next and its way to take a charge back by its mark.
local algorithms = {}
-- Those of hold.lua, once something is held.
local holds
-- Those of the plan at hand, by level.
local rules = {}

-- The plan at hand. The fields of its levels stay where they are in the input, column after column: the item of a level
-- is behind the column's start by the level's number. Copies, tables and calls are what takes most time here.
local count, charge, over_limit_only, dry_run, max_wait, one_key, records_key, twins, charged_at
local keys_at, fields_at, limits_at, costs_at, phases_at, places_at
-- Of a plan to be taken back: the values from before it, those that it has written, and the units that it was charged.
local befores_at, afters_at, charged_units_at
-- The renewal that comes with it, or the reservation that it is about, as {name, what is asked, units or time}; nil: none.
local renewal, reservation
-- The request's id, as {name, fingerprint, for how long}; nil: none. Whether it relies on what an attempt before has charged.
local request, claims
-- What it finds and what becomes of that, by place, and what each level says. `false`: nothing, which keeps a column whole.
local states, resets, decisions, next_states, changed = {}, {}, {}, {}, false
-- By place, what all levels there ask for together: where there are twins.
local totals = {}
-- Values as Redis holds them: before the plan, after it, and between, once the levels that count were charged and before
-- the shadows were. For plans that report their changes.
local found, written, counted = {}, {}, {}
-- By place, those levels of which units are held, as hold.lua takes them; false where there are none.
local levels = false
-- By level, 1 where what it was charged could not be taken back; or the units that it is charged afterwards.
local left_charged = {}
-- Whether anything of the plan was written, so that an error does not count as rejected.
local wrote = false
local key_count = 0

-- What the hash of the plan before has, after that plan: its fields, their states and those levels of which units are held, in
-- the order of its levels, and for how many milliseconds it lives on (false: not known). Redis runs no other command
-- during a script, and checks of a hot key come together, so that most of them read nothing.
local cached_hash, cached_count, cached_fields, cached_states, cached_levels, cached_left = false, 0, {}, {}, {}, false

-- Most of what a call takes, besides its plans, is to make its functions, each of which looks for what it captures among all that
-- is captured of the function around it. So they are made within one that has captured the above once, and those that few calls
-- need are made when they are.
