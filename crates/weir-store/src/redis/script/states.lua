-- The states of the current plan: loading from Redis, and writing back.

-- Whether the plan's states are cached. Plans that report or undo changes need the stored values too, so they bypass
-- the cache.
local function is_cached()
  if not (cached_hash and one_key and KEYS[key_count + 1] == cached_hash) then return false end
  if count ~= cached_count or duplicates or charge >= REPORTS or reservation then return false end
  for index = 1, count do
    if input[fields_at + index] ~= cached_fields[index] then return false end
  end
  return true
end

-- Caches the plan's results if the next plan is of the same hash. Called after the write, so that a failed plan caches
-- nothing.
local function cache()
  local hash = KEYS[key_count + 1]
  cached_hash = one_key and hash == KEYS[key_count + 2] and not duplicates and not reservation and charge < REPORTS
    and hash
  if not cached_hash then return end
  cached_count = count
  for index = 1, count do
    cached_fields[index], cached_states[index] = input[fields_at + index], resets[index] ~= 0 and states[index]
    local level = levels and levels[index]
    cached_levels[index] = level or false
    -- The next plan's limit may be able to use a ledger that this one's cannot.
    if levels and level == false then cached_hash = false end
  end
end

-- Returns the last of the levels that follow `first` with the same key, for plans with several keys.
local function last_of_key(first)
  local last, own = first, input[keys_at + first]
  while last < count and input[keys_at + last + 1] == own do last = last + 1 end
  return last
end

local unpack_limit = cmsgpack.unpack_limit

-- Ledgers by their encodings: all checks below a limit read its ledger, and few of a call's plans change it. They are
-- shared, so `own` copies one before it is changed.
local ledgers = {}

local function ledger_of(encoded)
  if ledgers[encoded] == nil then ledgers[encoded] = unpacked(encoded) end
  return ledgers[encoded]
end

local function own(level)
  if level.encoded then level.ledger, level.encoded = unpacked(level.encoded), nil end
end

-- Adds the ledger of a level, whose stored value expires at `expires` (nil: there is none). If the limit has changed and
-- cannot have holds, the ledger is dropped; `false` records that there was one. `encoded` is the ledger's encoding, if it
-- is shared.
local function add_level(index, ledger, expires, encoded)
  local rule = rules[index]
  levels = levels or {}
  levels[index] = false
  if type(ledger) ~= 'table' or not rule.charge or input[states_at + index] ~= index then return end
  load_holds()
  levels[index] = {
    step = rule.step, charge = rule.charge, p = rule.params, base = rule.base, s = states[index], ledger = ledger,
    phase = input[phases_at + index], slots = rule.slots, expires = expires or now, encoded = encoded,
  }
end

local function add_cached_level(index, level)
  if level.p ~= rules[index].params or level.phase ~= input[phases_at + index] then
    return add_level(index, level.ledger, level.expires, level.encoded)
  end
  levels = levels or {}
  level.s, levels[index] = states[index], level
end

-- Returns how long a state matters, if its limit alone, of the parameters `p`, needs it for `reset`.
local function lasts(rule, p, state, reset)
  local kept = rule.kept and state and rule.kept(state, p)
  return kept and kept - now > reset and kept - now or reset
end

-- Marks a level's state and ledger for writing, with the time for which the outstanding units may matter.
local function touch(index)
  states[index], changed = levels[index].s, true
  resets[index] = lasts(rules[index], rules[index].base, states[index], holds.reset(levels[index], now))
end

-- Burns a level's holds after their deadline: they count as spent.
local function expire(index)
  local level = levels[index]
  if not level then return end
  for _, hold in ipairs(level.ledger) do
    if hold[6] <= now then
      local before = level.s
      own(level)
      holds.expire(level, now)
      if level.s ~= before then touch(index) end
      return
    end
  end
end

-- Loads the states. Expired ones count as absent, regardless of their current limit, because a store may drop them at
-- any time.
local function load()
  levels = false
  if is_cached() then
    for index = 1, count do
      states[index], resets[index] = cached_states[index], false
      -- Expired holds are already burnt: time is fixed during a call.
      if cached_levels[index] then add_cached_level(index, cached_levels[index]) end
    end
    return
  end
  cached_hash, cached_left = false, false
  local first = 1
  while first <= count do
    local last = one_key and count or last_of_key(first)
    local values = call('HMGET', key_of(first), unpack(input, fields_at + first, fields_at + last))
    for index = first, last do
      local value, state, ledger_at, expires = values[index - first + 1], false
      if value then ledger_at, expires, state = unpack_limit(value, 2) end
      if type(state) == 'table' and expires <= now then state = false end
      states[index], found[index], resets[index] = state, value, false
      if value and ledger_at >= 0 then
        local encoded = string.sub(value, ledger_at + 1)
        add_level(index, ledger_of(encoded), expires, encoded)
      end
    end
    first = last + 1
  end
  for index = 1, levels and count or 0 do expire(index) end
end

-- Whether a ledger has holds that have not expired. Those without units are kept too, to recognize repeated renewals.
local function is_held(ledger)
  if type(ledger) ~= 'table' then return false end
  load_holds()
  local whole, last = pcall(holds.last_deadline, ledger)
  return whole and last > now
end

-- Examines `fields` random fields of a hash and deletes those that have expired.
local function sweep(hash, fields)
  local found = call('HRANDFIELD', hash, fields, 'WITHVALUES')
  for index = 1, #found, 2 do
    local read, expires, _, ledger = pcall(unpacked, found[index + 1])
    local is_over = read and type(expires) == 'number' and expires + GRACE_MICROS < now
    if is_over and not is_held(ledger) then call('HDEL', hash, found[index]) end
  end
end

-- Returns the stored value of a state, with its ledger if it has holds, and for how long these are kept; 0 without. Holds
-- never expire earlier than before: the limit that granted the units may have needed them for longer than this one does.
local function value_of(index, reset, state)
  local level = levels and levels[index]
  local ledger = level and level.ledger
  if not ledger or #ledger == 0 then return pack(now + reset, state), 0 end
  level.expires = math.max(level.expires, now + reset)
  local lasts_until = math.max(level.expires, holds.last_deadline(ledger))
  local encoded = level.encoded or pack(ledger)
  return pack(level.expires, reset > 0 and state) .. encoded, lasts_until - now
end

local arguments = {}

local function save_key(first, last)
  local length, longest, held_for = 0, 0, 0
  for index = first, last do
    local reset = resets[index]
    if reset then
      local value, kept_for
      if levels then
        value, kept_for = value_of(index, reset, states[index])
        if kept_for > held_for then held_for = kept_for end
      else
        value = pack(now + reset, states[index])
      end
      arguments[length + 1], arguments[length + 2], written[index] = input[fields_at + index], value, value
      length = length + 2
      if reset > longest then longest = reset end
    end
  end
  if length == 0 then return end
  local hash = key_of(first)
  if held_for > 0 then
    if held_for > longest then longest = held_for end
    local known = call('HMGET', hash, HELD)[1]
    if not known or unpacked(known) < now + held_for then
      -- An eighth more, so that not every hold moves it.
      local longer = math.max(held_for + floor(held_for / 8), holds.TTL)
      arguments[length + 1], arguments[length + 2] = HELD, pack(now + longer)
      length = length + 2
    end
  end
  local added = call('HSET', hash, unpack(arguments, 1, length))
  wrote = true
  local known = hash == cached_hash and cached_left
  local left, ttl = known or call('PTTL', hash), ceil(longest / 1000) + 1000
  if ttl < least_ttl then ttl = least_ttl end
  cached_left = left
  if left < ttl then
    -- An eighth more, so that a state that lasts longer with each charge does not move it every time. Formatted here,
    -- because Redis converts numbers more slowly than Lua.
    cached_left = ttl + floor(ttl / 8)
    call('PEXPIRE', hash, format('%d', cached_left))
  end
  if left >= 0 and own_clock and (added > 0 or not known and now % SWEEP_UPDATES == 0) then
    sweep(hash, (added > 0 and added or 1) * SWEEP_FIELDS)
  end
end

local function save()
  local first = 1
  while first <= count do
    local last = one_key and count or last_of_key(first)
    save_key(first, last)
    first = last + 1
  end
end
