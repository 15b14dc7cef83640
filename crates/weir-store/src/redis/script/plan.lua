-- Decoding of plans and their limits.

-- Grace period after expiry before a sweep deletes a field, in microseconds, because a clock may step back a little.
local GRACE_MICROS = 1000000
-- SWEEP_FIELDS: fields examined for each added field, so that at most about a quarter of a growing hash has expired.
-- SWEEP_UPDATES: one in this many updates sweeps too, so that a hash that does not grow is cleaned up.
local SWEEP_FIELDS, SWEEP_UPDATES = 4, 16

-- Charge modes, numbered as in encode.rs: 0 all or nothing, 1 independent; plus 2 report changes, 4 undo, 8 renewal, 16
-- dry run, 32 reservation, 64 request id, 128 charge only the limits that refuse, 256 claim the charges of an earlier
-- attempt, or undo all charges, regardless of the policy. Or -1, as in outage_charge.lua.
local OUTAGE_CHARGE, REPORTS, UNDOES, RENEWS, DRY_RUN, RESERVES, HAS_ID, OVER_LIMIT_ONLY = -1, 2, 4, 8, 16, 32, 64, 128
local CLAIMS = 256
-- Steps of a reservation, numbered as in encode.rs: make it, kept or released at expiry; settle, extend, undo.
local RESERVE_KEEP, RESERVE_RELEASE, SETTLE, EXTEND, UNDO_RESERVATION = 1, 2, 3, 4, 5
-- Conditions for an undo other than a period, numbered as in encode.rs.
local NEVER, BY_MARK, WITHIN_WINDOW = -1, -2, -3
-- The field of a hash with the time until which there may be holds on its states.
local HELD = 'held'
-- The prefix of the fields of records; alone, the field with the time until which there may be some. No state's field
-- starts with it.
local RECORDS = '\253'

local function load_holds()
  holds = holds or hold_functions()
end

local function read_limit(text)
  local number, flags, params, period, base = unpack(unpacked(text))
  local algorithm = algorithms[number]
  if not algorithm then
    algorithm = {algorithm_functions(number)}
    algorithms[number] = algorithm
  end
  local limit = {
    step = algorithm[1], charge = algorithm[2], next = algorithm[3], kept = algorithm[4], without = algorithm[5],
    params = params, base = base or params, is_scaled = base ~= nil, period = period, shadow = flags % 2 == 1, charges_denied = flags % 4 >= 2, slots = flags >= 4,
  }
  limits[text] = limit
  return limit
end

local function read_plan()
  charge, max_wait, one_key, count = input[at], input[at + 1], input[at + 2] == 1, input[at + 3]
  records_key = KEYS[key_count + input[at + 2]]
  at = at + 3
  renewal, reservation, request = nil, nil, nil
  claims_charges = charge >= CLAIMS
  if claims_charges then charge = charge - CLAIMS end
  over_limit_only = charge >= OVER_LIMIT_ONLY
  if over_limit_only then charge = charge - OVER_LIMIT_ONLY end
  if charge >= HAS_ID then
    request = {unpack(input, at + 1, at + 5)}
    at, charge = at + 5, charge - HAS_ID
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
  costs_at, phases_at, states_at = at + 3 * count, at + 4 * count, at + 5 * count
  at = at + 6 * count
  if charge >= UNDOES then
    befores_at, afters_at, charged_units_at = at, at + count, at + 2 * count
    at = at + 3 * count
  end
  at = at + 1
  duplicates = false
  for index = 1, count do
    local text = input[limits_at + index]
    rules[index] = limits[text] or read_limit(text)
    if input[states_at + index] ~= index then duplicates = true end
  end
  if not duplicates then return end
  for index = 1, count do totals[index] = 0 end
  for index = 1, count do
    local place = input[states_at + index]
    totals[place] = totals[place] + input[costs_at + index]
  end
end

local function key_of(index)
  return KEYS[key_count + input[keys_at + index]]
end
