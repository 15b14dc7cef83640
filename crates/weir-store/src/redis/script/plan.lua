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

-- How long what has expired is left alone when fields are swept, in microseconds: a clock may step back a little.
local GRACE = 1000000
-- Fields looked at for each one that is added, so that no more than about a quarter of a hash that grows has expired, and
-- for one of so many updates, so that one that does not grow is cleared up too.
local LOOKS, UPDATES = 4, 16

-- The plans of one call share few limits, so each is read once.
local limits = {}
-- The functions of the algorithms met so far: of each its step, its charge, its next and its way to take a charge back by its mark. Most
-- of what a call takes, besides its plans, is to make functions, so those that few calls need are made when they are.
local algorithms = {}
-- Those of hold.lua, once something is held.
local hold_step, hold_charge, hold_expire, hold_renew, hold_has_room, hold_reserve, hold_settle_reserved
local HOLD_TTL, KEPT, RELEASED

local function load_holds()
  if hold_step then return end
  hold_step, hold_charge, hold_expire, hold_renew, hold_has_room, hold_reserve, hold_settle_reserved, HOLD_TTL, KEPT,
    RELEASED = hold_functions()
end
-- Those of the plan at hand, by level.
local rules = {}

-- How a plan is charged, as encode.rs numbers it: 0 all or nothing, 1 independent; by 2 more it tells what it has written;
-- by 4 more that is taken back; by 8 more a renewal comes with it; by 16 more nothing is written; by 32 more it is about a
-- reservation; by 64 more the request has an id. Or as afterwards.lua does.
local AFTERWARDS, TELLS, UNDOES, RENEWS, DRY_RUN, RESERVES, HAS_ID = -1, 2, 4, 8, 16, 32, 64
-- What is asked of a reservation, as encode.rs numbers it: to be made, kept or given back when it expires, settled, extended.
local RESERVE_KEEP, RESERVE_RELEASE, SETTLE, EXTEND = 1, 2, 3, 4
-- When a limit's charge may be taken back, as encode.rs numbers it, where that is not for a period.
local NEVER, BY_MARK = -1, -2
-- The field of a hash that says until when units may be held of its states.
local HELD = 'held'
-- What the fields of reservations' records begin with; alone it is the field that says until when there may be some. No
-- state's field begins with it.
local RECORDS = '\253'

local function read_limit(text)
  local number, flags, params, period = unpack(unpacked(text))
  local algorithm = algorithms[number]
  if not algorithm then
    algorithm = {loaders[number]()}
    algorithms[number] = algorithm
  end
  local limit = {
    step = algorithm[1], charge = algorithm[2], next = algorithm[3], without = algorithm[4], params = params, period = period,
    shadow = flags % 2 == 1, charges_denied = flags >= 2,
  }
  limits[text] = limit
  return limit
end

-- The plan at hand. The fields of its levels stay where they are in the input, column after column: the item of a level
-- is behind the column's start by the level's number. Copies, tables and calls are what takes most time here.
local count, charge, dry_run, max_wait, one_key, twins, charged_at
local keys_at, fields_at, limits_at, costs_at, phases_at, places_at
-- Of a plan to be taken back: the values from before it, those that it has written, and the units that it was charged.
local befores_at, afters_at, charged_units_at
-- The renewal that comes with it, or the reservation that it is about, as {name, what is asked, units or time}; nil: none.
local renewal, reservation
-- The request's id, as {name, fingerprint, for how long}; nil: none.
local request
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
-- Whether anything of the plan was written, so that an error is no refusal.
local wrote = false
local key_count = 0

-- What the hash of the plan before has, after that plan: its fields and their states in the order of its levels, and for
-- how many milliseconds it lives on (false: not known). Nobody else writes while a call runs, and checks of a hot key come
-- together, so that most of them read nothing.
local cached_hash, cached_count, cached_fields, cached_states, cached_left = false, 0, {}, {}, false

local function read_plan()
  charge, max_wait, one_key, count = input[at], input[at + 1], input[at + 2] == 1, input[at + 3]
  at = at + 3
  renewal, reservation, request = nil, nil, nil
  if charge >= HAS_ID then
    request = {input[at + 1], input[at + 2], input[at + 3]}
    at, charge = at + 3, charge - HAS_ID
  end
  if charge >= RESERVES then
    reservation = {input[at + 1], input[at + 2], input[at + 3]}
    at, charge = at + 3, charge - RESERVES
  end
  dry_run = charge >= DRY_RUN
  if dry_run then charge = charge - DRY_RUN end
  if charge >= RENEWS then
    renewal = {unpack(input, at + 1, at + 6)}
    at, charge = at + 6, charge - RENEWS
  elseif charge >= UNDOES then
    at = at + 1
    charged_at = input[at]
  end
  keys_at, fields_at, limits_at = at, at + count, at + 2 * count
  costs_at, phases_at, places_at = at + 3 * count, at + 4 * count, at + 5 * count
  at = at + 6 * count
  if charge >= UNDOES then
    befores_at, afters_at, charged_units_at = at, at + count, at + 2 * count
    at = at + 3 * count
  end
  at = at + 1
  twins = false
  for index = 1, count do
    local text = input[limits_at + index]
    rules[index] = limits[text] or read_limit(text)
    if input[places_at + index] ~= index then twins = true end
  end
  if not twins then return end
  for index = 1, count do totals[index] = 0 end
  for index = 1, count do
    local place = input[places_at + index]
    totals[place] = totals[place] + input[costs_at + index]
  end
end

local function key_of(index)
  return KEYS[key_count + input[keys_at + index]]
end
