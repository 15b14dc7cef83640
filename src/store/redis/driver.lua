-- Carries out one call over anchors, each of which is one hash: a field for each state, whose value is two MessagePack
-- values in a row, the moment at which the state means nothing any more and the list of its words.
--
-- ARGV[1] is a MessagePack array, written by encode.rs: the moment (-1: this server's), the least time to live of a key in
-- milliseconds, what to do, and then what that takes. KEYS are the anchors in the order in which they are used.

local input, at = cmsgpack.unpack(ARGV[1]), 4
local now, least_ttl, task = input[1], input[2], input[3]
local own_clock = now < 0
if own_clock then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- How long what has expired is left alone when fields are swept, in microseconds: a clock may step back a little.
local GRACE = 1000000
-- Fields looked at for each one that is added, so that no more than about a quarter of a hash has expired.
local LOOKS = 4

-- The plans of one call share few limits, so each is read once.
local limits = {}

-- How a plan is charged, as encode.rs numbers it: 0 all or nothing, 1 independent; by 2 more it tells what it has written;
-- by 4 more that is taken back.
local TELLS, UNDOES = 2, 4

local function limit_of(text)
  local limit = limits[text]
  if not limit then
    local step, flags, params, period = unpack(cmsgpack.unpack(text))
    limit = {step = steps[step], params = params, shadow = flags % 2 == 1, charges_denied = flags >= 2, period = period}
    limits[text] = limit
  end
  return limit
end

-- The plan at hand: its levels in columns, made once for all plans, since making tables is what takes most time here.
local count, charge, max_wait, twins, charged_at
local key, field, limit, cost, phase, place = {}, {}, {}, {}, {}, {}
-- Of a plan to be taken back: the values from before it, those that it has written, and the units that it was charged.
local befores, afters, charged = {}, {}, {}
-- What it finds and what becomes of that, by place.
local states, resets, decisions
-- For plans that tell or are taken back: values as Redis holds them, and whether a level that counts has charged. Others
-- leave in them what nobody reads.
local found, written, counted = {}, {}, {}
local key_count = 0

local function read_plan()
  charge, max_wait, twins = input[at], input[at + 1], false
  local keys = input[at + 2]
  count = input[at + 3]
  at = at + 4
  if charge >= UNDOES then
    charged_at = input[at]
    at = at + 1
  end
  for index = 1, count do
    key[index], field[index], limit[index] = KEYS[key_count + input[at]], input[at + 1], limit_of(input[at + 2])
    cost[index], phase[index], place[index] = input[at + 3], input[at + 4], input[at + 5]
    twins = twins or place[index] ~= index
    at = at + 6
    if charge >= UNDOES then
      befores[index], afters[index], charged[index] = input[at], input[at + 1], input[at + 2]
      at = at + 3
    end
  end
  key_count = key_count + keys
end

-- The last of the levels that follow `first` under the same key.
local function last_of_key(first)
  local last = first
  while last < count and key[last + 1] == key[first] do last = last + 1 end
  return last
end

local function load()
  local first = 1
  while first <= count do
    local last = last_of_key(first)
    local values = redis.call('HMGET', key[first], unpack(field, first, last))
    for index = first, last do
      local value = values[index - first + 1]
      if value then
        local expires, words = cmsgpack.unpack(value)
        states[index], found[index] = words, value
      end
    end
    first = last + 1
  end
end

-- Drops a few fields of a hash that have expired.
local function sweep(hash, looks)
  local found = redis.call('HRANDFIELD', hash, looks, 'WITHVALUES')
  for index = 1, #found, 2 do
    local read, expires = pcall(cmsgpack.unpack, found[index + 1])
    if read and type(expires) == 'number' and expires + GRACE < now then redis.call('HDEL', hash, found[index]) end
  end
end

local function save_key(first, last)
  local fields, longest = {}, 0
  for index = first, last do
    local reset = resets[index]
    if reset then
      fields[#fields + 1] = field[index]
      written[index] = cmsgpack.pack(now + reset, states[index])
      fields[#fields + 1] = written[index]
      if reset > longest then longest = reset end
    end
  end
  if #fields == 0 then return end
  local hash = key[first]
  local added = redis.call('HSET', hash, unpack(fields))
  local left, ttl = redis.call('PTTL', hash), math.max(math.ceil(longest / 1000) + 1000, least_ttl)
  if left < ttl then redis.call('PEXPIRE', hash, ttl) end
  if added > 0 and left >= 0 and own_clock then sweep(hash, added * LOOKS) end
end

local function save()
  local first = 1
  while first <= count do
    local last = last_of_key(first)
    save_key(first, last)
    first = last + 1
  end
end

-- What all levels on the state of `index` ask for together.
local function total_cost(index)
  if not twins then return cost[index] end
  local total = 0
  for other = 1, count do
    if place[other] == place[index] then total = total + cost[other] end
  end
  return total
end

local function step(index, units)
  local rule = limit[index]
  return rule.step(rule.params, states[place[index]], now, units, max_wait, phase[index])
end

local function put(index, state)
  if state then states[place[index]], resets[place[index]] = state, decisions[index][5] end
end

local function charges_anyway(index, units)
  return units > 0 and limit[index].charges_denied
end

local function all_or_nothing()
  local next_states, passes = {}, true
  for index = 1, count do
    local decision, state = step(index, total_cost(index))
    decisions[index], next_states[index] = decision, state
    if decision[1] == 0 and not limit[index].shadow then passes = false end
  end
  for index = 1, count do
    if passes or charges_anyway(index, total_cost(index)) then
      put(index, next_states[index])
    elseif decisions[index][1] == 1 then
      decisions[index] = step(index, 0)
    end
  end
end

-- The levels that count go first: whether the shadows are charged is known only then.
local function independent()
  local allowed, state = true
  for index = 1, count do
    if not limit[index].shadow then
      decisions[index], state = step(index, cost[index])
      put(index, state)
      if state then counted[place[index]] = true end
      allowed = allowed and decisions[index][1] == 1
    end
  end
  for index = 1, count do
    if limit[index].shadow then
      decisions[index], state = step(index, cost[index])
      if allowed or charges_anyway(index, cost[index]) then
        put(index, state)
      elseif decisions[index][1] == 1 then
        decisions[index] = step(index, 0)
      end
    end
  end
end

-- Puts a state back to what it was before the plan, where nobody else has written since; tells whether.
local function restore(index)
  if afters[index] == '' then return true end
  if found[index] ~= afters[index] then return false end
  if befores[index] == '' then
    redis.call('HDEL', key[index], field[index])
    states[index] = nil
  else
    redis.call('HSET', key[index], field[index], befores[index])
    local expires, words = cmsgpack.unpack(befores[index])
    states[index] = words
  end
  return true
end

-- Gives back what was charged to a level and still counts.
local function give_back(index)
  local period = limit[index].period
  local window = period > 0 and math.floor((charged_at - phase[index]) / period)
  if window and window ~= math.floor((now - phase[index]) / period) then return end
  local decision, state = step(index, -charged[index])
  decisions[index] = decision
  put(index, state)
end

-- Takes back what a plan has charged before it was refused elsewhere: exactly, where nobody else has written since, else
-- what of it still counts. Then tells how the levels stand.
local function undo()
  local restored = {}
  for index = 1, count do
    if place[index] == index then restored[index] = restore(index) end
    if not restored[place[index]] and charged[index] > 0 then give_back(index) end
  end
  for index = 1, count do
    decisions[index] = step(index, charge == UNDOES and total_cost(index) or cost[index])
    if decisions[index][1] == 1 then decisions[index] = step(index, 0) end
  end
end

local charges = {[0] = all_or_nothing, independent, all_or_nothing, independent, undo, undo}

-- What a level has found and written, to be taken back; '': nothing is. Of what a level that counts has charged for itself
-- at most a part is: no value is ever '-'.
local function change(index)
  local own = place[index]
  if not written[own] or limit[index].charges_denied then return '', '' end
  if counted[own] then return '', '-' end
  return found[own] or '', written[own]
end

-- Decides one plan as plan/decide.rs does, or fails before anything of it is written.
local function run(output)
  states, resets, decisions = {}, {}, {}
  if charge >= TELLS then found, written, counted = {}, {}, {} end
  load()
  charges[charge]()
  if next(resets) then save() end
  local length = #output + 1
  output[length] = 0
  for index = 1, count do
    local decision = decisions[index]
    for word = 1, 7 do output[length + word] = decision[word] end
    length = length + 7
    if charge >= TELLS and charge < UNDOES then
      output[length + 1], output[length + 2] = change(index)
      length = length + 2
    end
  end
end

-- All plans in a row: for each 0 and its decisions, or 1 and what is wrong with it.
local function decide_all()
  local output = {now}
  while input[at] do
    read_plan()
    local done, failure = pcall(run, output)
    if not done then
      output[#output + 1] = 1
      output[#output + 1] = type(failure) == 'table' and failure.err or tostring(failure)
    end
  end
  return output
end

-- Forgets the fields of a hash that belong to the key named by `rest`, and with `subtree` to those below it, a page at a
-- time: where the next page begins ('0': nowhere), and whether the key itself had a state that still meant something.
local function reset()
  local hash, rest, subtree, cursor = KEYS[1], input[4], input[5] == 1, input[6]
  local read, page = pcall(redis.call, 'HSCAN', hash, cursor, 'COUNT', 1000)
  if not read then
    local failure = type(page) == 'table' and page.err or tostring(page)
    if not string.find(failure, 'WRONGTYPE', 1, true) then error(failure) end
    -- What is no hash is of no use to anyone here.
    redis.call('UNLINK', hash)
    return {'0', 1}
  end
  local existed, gone = 0, {}
  for index = 1, #page[2], 2 do
    local field = page[2][index]
    if string.sub(field, 1, #rest) == rest then
      local own = string.byte(field, #rest + 1) == 255
      local read, expires = pcall(cmsgpack.unpack, page[2][index + 1])
      if own and not (read and type(expires) == 'number' and expires <= now) then existed = 1 end
      if own or subtree then gone[#gone + 1] = field end
    end
  end
  if rest == '' and subtree then
    -- The whole hash goes at once, as soon as the answer is known.
    if existed == 0 and page[1] ~= '0' then return {page[1], 0} end
    redis.call('UNLINK', hash)
    return {'0', existed}
  end
  for first = 1, #gone, 1000 do
    redis.call('HDEL', hash, unpack(gone, first, math.min(first + 999, #gone)))
  end
  return {page[1], existed}
end

-- Shows that this server takes writes, and that its user may do all that a check needs.
local function probe()
  local hash = KEYS[1]
  redis.call('HMGET', hash, 'probe')
  redis.call('PTTL', hash)
  redis.call('PEXPIRE', hash, 1000)
  redis.call('HRANDFIELD', hash, 1, 'WITHVALUES')
  redis.call('HSET', hash, 'probe', now)
  redis.call('HDEL', hash, 'probe')
  return {now}
end

local tasks = {[0] = decide_all, reset, probe}
return cmsgpack.pack(tasks[task]())
