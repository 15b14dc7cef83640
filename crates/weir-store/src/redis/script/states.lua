-- The states of the plan at hand: found in Redis, and written back.

-- Whether what this plan finds is cached. One that tells or takes back wants the values too.
local function is_cached()
  if not (cached_hash and one_key and KEYS[key_count + 1] == cached_hash) then return false end
  if count ~= cached_count or twins or charge >= TELLS or reservation then return false end
  for index = 1, count do
    if input[fields_at + index] ~= cached_fields[index] then return false end
  end
  return true
end

-- Caches what this plan leaves, if the next one is of the same hash. To be called when it is written, so that of one that
-- fails nothing is cached.
local function cache()
  local hash = KEYS[key_count + 1]
  cached_hash = one_key and hash == KEYS[key_count + 2] and not twins and not reservation and charge < TELLS and hash
  if not cached_hash then return end
  cached_count = count
  for index = 1, count do
    cached_fields[index], cached_states[index] = input[fields_at + index], resets[index] ~= 0 and states[index]
    local level = levels and levels[index]
    cached_levels[index] = level or false
    -- Another limit may know what to do with a ledger that is not this one's.
    if levels and level == false then cached_hash = false end
  end
end

-- The last of the levels that follow `first` under the same key, where there are several keys.
local function last_of_key(first)
  local last, own = first, input[keys_at + first]
  while last < count and input[keys_at + last + 1] == own do last = last + 1 end
  return last
end

-- A level of which units are held. What a limit cannot have held any more, since it has become another, is forgotten; `false`
-- tells that it was there.
local function add_level(index, ledger)
  local rule = rules[index]
  levels = levels or {}
  levels[index] = false
  if type(ledger) ~= 'table' or not rule.charge or input[places_at + index] ~= index then return end
  load_holds()
  levels[index] = {
    step = rule.step, charge = rule.charge, p = rule.params, base = rule.base, s = states[index], ledger = ledger,
    phase = input[phases_at + index], slots = rule.slots,
  }
end

local function add_cached_level(index, level)
  if level.p ~= rules[index].params or level.phase ~= input[phases_at + index] then return add_level(index, level.ledger) end
  levels = levels or {}
  level.s, levels[index] = states[index], level
end

-- Has a level's state and ledger written, to last for as long as what is outstanding may matter.
local function touch(index)
  states[index], resets[index], changed = levels[index].s, holds.reset(levels[index], now), true
end

-- Burns what is held beyond its deadline.
local function expire()
  for index = 1, count do
    local level = levels[index]
    local before = level and level.s
    if level then holds.expire(level, now) end
    if level and level.s ~= before then touch(index) end
  end
end

-- Finds the states. Of those that have expired a store may drop any at any time, so here they are nothing, whatever their
-- limits have become since.
local function load()
  levels = false
  if is_cached() then
    for index = 1, count do
      states[index], resets[index] = cached_states[index], false
      -- What had expired is burnt already: time stands still while a call runs.
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
      local value, words, expires, ledger = values[index - first + 1], false
      if value then expires, words, ledger = unpacked(value) end
      if type(words) == 'table' and expires <= now then words = false end
      states[index], found[index], resets[index] = words, value, false
      if ledger then add_level(index, ledger) end
    end
    first = last + 1
  end
  if levels then expire() end
end

-- Drops a few fields of a hash that have expired.
local function sweep(hash, looks)
  local found = call('HRANDFIELD', hash, looks, 'WITHVALUES')
  for index = 1, #found, 2 do
    local read, expires = pcall(unpacked, found[index + 1])
    if read and type(expires) == 'number' and expires + GRACE < now then call('HDEL', hash, found[index]) end
  end
end

-- The value of a state, with its ledger where it has one.
local function value_of(index, reset, state)
  local ledger = levels and levels[index] and levels[index].ledger
  if ledger and #ledger > 0 then return pack(now + reset, state, ledger), true end
  return pack(now + reset, state), false
end

local arguments = {}

local function save_key(first, last)
  local length, longest, any_held = 0, 0, false
  for index = first, last do
    local reset = resets[index]
    if reset then
      local value, is_held
      if levels then
        value, is_held = value_of(index, reset, states[index])
        any_held = any_held or is_held
      else
        value = pack(now + reset, states[index])
      end
      arguments[length + 1], arguments[length + 2], written[index] = input[fields_at + index], value, value
      length = length + 2
      if reset > longest then longest = reset end
    end
  end
  if length == 0 then return end
  if any_held then
    arguments[length + 1], arguments[length + 2] = HELD, pack(now + holds.TTL)
    length = length + 2
  end
  local hash = key_of(first)
  local added = call('HSET', hash, unpack(arguments, 1, length))
  wrote = true
  local known = hash == cached_hash and cached_left
  local left, ttl = known or call('PTTL', hash), ceil(longest / 1000) + 1000
  if ttl < least_ttl then ttl = least_ttl end
  cached_left = left
  if left < ttl then
    -- An eighth more, so that of a state that lasts longer with each charge not every one moves this. Redis takes longer to
    -- write out a number than Lua does.
    cached_left = ttl + floor(ttl / 8)
    call('PEXPIRE', hash, format('%d', cached_left))
  end
  if left >= 0 and own_clock and (added > 0 or not known and now % UPDATES == 0) then
    sweep(hash, (added > 0 and added or 1) * LOOKS)
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
