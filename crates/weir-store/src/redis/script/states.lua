-- The states of the plan at hand: found in Redis, and written back.

-- Whether what this plan finds is held. One that tells or takes back wants the values too.
local function is_held()
  if not (held_hash and one_key and KEYS[key_count + 1] == held_hash) then return false end
  if count ~= held_count or twins or charge >= TELLS then return false end
  for index = 1, count do
    if input[fields_at + index] ~= held_fields[index] then return false end
  end
  return true
end

-- Holds what this plan leaves. To be called when it is written, so that of one that fails nothing is held.
local function hold()
  held_hash = one_key and not twins and charge < TELLS and KEYS[key_count + 1]
  if not held_hash then return end
  held_count = count
  for index = 1, count do
    held_fields[index], held_states[index] = input[fields_at + index], resets[index] ~= 0 and states[index]
  end
end

-- The last of the levels that follow `first` under the same key.
local function last_of_key(first)
  if one_key then return count end
  local last, own = first, input[keys_at + first]
  while last < count and input[keys_at + last + 1] == own do last = last + 1 end
  return last
end

-- Finds the states. Of those that have expired a store may drop any at any time, so here they are nothing, whatever their
-- limits have become since.
local function load()
  if is_held() then
    for index = 1, count do states[index], resets[index] = held_states[index], false end
    return
  end
  held_hash, held_left = false, false
  local first = 1
  while first <= count do
    local last = last_of_key(first)
    local values = call('HMGET', key_of(first), unpack(input, fields_at + first, fields_at + last))
    for index = first, last do
      local value, words, expires = values[index - first + 1], false
      if value then expires, words = unpacked(value) end
      if type(words) == 'table' and expires <= now then words = false end
      states[index], found[index], resets[index] = words, value, false
    end
    first = last + 1
  end
end

-- Drops a few fields of a hash that have expired.
local function sweep(hash, looks)
  local found = call('HRANDFIELD', hash, looks, 'WITHVALUES')
  for index = 1, #found, 2 do
    local read, expires = pcall(unpacked, found[index + 1])
    if read and type(expires) == 'number' and expires + GRACE < now then call('HDEL', hash, found[index]) end
  end
end

local arguments = {}

local function save_key(first, last)
  local length, longest = 0, 0
  for index = first, last do
    local reset = resets[index]
    if reset then
      local value = pack(now + reset, states[index])
      arguments[length + 1], arguments[length + 2], written[index] = input[fields_at + index], value, value
      length = length + 2
      if reset > longest then longest = reset end
    end
  end
  if length == 0 then return end
  local hash = key_of(first)
  local added = call('HSET', hash, unpack(arguments, 1, length))
  wrote = true
  local known = hash == held_hash and held_left
  local left, ttl = known or call('PTTL', hash), ceil(longest / 1000) + 1000
  if ttl < least_ttl then ttl = least_ttl end
  held_left = left
  if left < ttl then
    -- An eighth more, so that of a state that lasts longer with each charge not every one moves this. Redis takes longer to
    -- write out a number than Lua does.
    held_left = ttl + floor(ttl / 8)
    call('PEXPIRE', hash, format('%d', held_left))
  end
  if left >= 0 and own_clock and (added > 0 or not known and now % UPDATES == 0) then
    sweep(hash, (added > 0 and added or 1) * LOOKS)
  end
end

local function save()
  local first = 1
  while first <= count do
    local last = last_of_key(first)
    save_key(first, last)
    first = last + 1
  end
end
