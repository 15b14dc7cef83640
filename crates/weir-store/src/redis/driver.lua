-- Carries out one call over anchors, each of which is one hash: a field for each state, whose value is two MessagePack
-- values in a row, the moment at which the state means nothing any more and the list of its words.
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
-- Those of the plan at hand, by level.
local rules = {}

-- How a plan is charged, as encode.rs numbers it: 0 all or nothing, 1 independent; by 2 more it tells what it has written;
-- by 4 more that is taken back; by 8 more nothing is written.
local TELLS, UNDOES, DRY_RUN = 2, 4, 8
-- When a limit's charge may be taken back, as encode.rs numbers it, where that is not for a period.
local NEVER, BY_MARK = -1, -2

local function read_limit(text)
  local step, flags, params, period = unpack(unpacked(text))
  local limit = {step = steps[step], params = params, shadow = flags % 2 == 1, charges_denied = flags >= 2, period = period}
  limit.next = nexts[step]
  limits[text] = limit
  return limit
end

-- The plan at hand. The fields of its levels stay where they are in the input, column after column: the item of a level
-- is behind the column's start by the level's number. Copies, tables and calls are what takes most time here.
local count, charge, dry_run, max_wait, one_key, twins, charged_at
local keys_at, fields_at, limits_at, costs_at, phases_at, places_at
-- Of a plan to be taken back: the values from before it, those that it has written, and the units that it was charged.
local befores_at, afters_at, charged_units_at
-- What it finds and what becomes of that, by place, and what each level says. `false`: nothing, which keeps a column whole.
local states, resets, decisions, next_states, changed = {}, {}, {}, {}, false
-- By place, what all levels there ask for together: where there are twins.
local totals = {}
-- Values as Redis holds them: before the plan, after it, and between, once the levels that count were charged and before
-- the shadows were. For plans that report their changes.
local found, written, counted = {}, {}, {}
-- By level, 1 where what it was charged could not be taken back.
local left_charged = {}
-- Whether anything of the plan was written, so that an error is no refusal.
local wrote = false
local key_count = 0

-- What the hash of the plan before holds, after that plan: its fields and their states in the order of its levels, and for
-- how many milliseconds it lives on (false: not known). Nobody else writes while a call runs, and checks of a hot key come
-- together, so that most of them read nothing.
local held_hash, held_count, held_fields, held_states, held_left = false, 0, {}, {}, false

local function read_plan()
  charge, max_wait, one_key, count = input[at], input[at + 1], input[at + 2] == 1, input[at + 3]
  at = at + 3
  dry_run = charge >= DRY_RUN
  if dry_run then charge = charge - DRY_RUN end
  if charge >= UNDOES then
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

-- What all levels on the state of `index` ask for together.
local function total_cost(index)
  return twins and totals[input[places_at + index]] or input[costs_at + index]
end

-- The time until a unit is left in a state, of which none is after this decision: see Algorithm::next_after.
local function next_after(rule, decision, state, units, phase)
  if rule.next then return rule.next(rule.params, state, now, max_wait, phase) end
  if units == 1 and decision[1] == 0 then return decision[4] end
  return rule.step(rule.params, state, now, 1, max_wait, phase)[4]
end

local function step(index, units)
  local rule, place = rules[index], input[places_at + index]
  -- What a level of this plan has emptied is nothing to the next one, as is what has expired.
  local state = resets[place] ~= 0 and states[place]
  local phase = input[phases_at + index]
  local decision, next_state = rule.step(rule.params, state, now, units, max_wait, phase)
  if decision[3] == 0 then decision[8] = next_after(rule, decision, next_state or state, units, phase) end
  return decision, next_state
end

local function put(index, state)
  local place = input[places_at + index]
  states[place], resets[place], changed = state, decisions[index][5], true
end

local function charges_anyway(index, units)
  return units > 0 and rules[index].charges_denied
end

-- After a refusal only those levels are charged that charge what is denied; the others tell how they stand uncharged. What
-- refuses may cut a state that another limit made, and that is kept.
local function settle_refusal()
  for index = 1, count do
    if decisions[index][1] == 0 or charges_anyway(index, total_cost(index)) then
      if next_states[index] then put(index, next_states[index]) end
    else
      decisions[index] = step(index, 0)
    end
  end
end

local function all_or_nothing()
  local passes = true
  for index = 1, count do
    local decision, state = step(index, twins and total_cost(index) or input[costs_at + index])
    decisions[index], next_states[index] = decision, state or false
    if decision[1] == 0 and not rules[index].shadow then passes = false end
  end
  if not passes then return settle_refusal() end
  for index = 1, count do
    if next_states[index] then put(index, next_states[index]) end
  end
end

-- Charges those levels that count and pass: whether all do.
local function charge_counting()
  local allowed, state = true
  for index = 1, count do
    if not rules[index].shadow then
      decisions[index], state = step(index, input[costs_at + index])
      if state then
        put(index, state)
        if charge >= TELLS then counted[input[places_at + index]] = pack(now + decisions[index][5], state) end
      end
      allowed = allowed and decisions[index][1] == 1
    end
  end
  return allowed
end

-- The levels that count go first: whether the shadows are charged is known only then.
local function independent()
  local allowed, state = charge_counting()
  for index = 1, count do
    if rules[index].shadow then
      decisions[index], state = step(index, input[costs_at + index])
      if allowed or decisions[index][1] == 0 or charges_anyway(index, input[costs_at + index]) then
        if state then put(index, state) end
      else
        decisions[index] = step(index, 0)
      end
    end
  end
end

-- Puts a state back to what it was before the plan, where no one else has written since; returns whether.
local function restore(index)
  local field, before, after = input[fields_at + index], input[befores_at + index], input[afters_at + index]
  if after == '' then return true end
  if found[index] ~= after then return false end
  if before == '' then
    call('HDEL', key_of(index), field)
    states[index] = false
  else
    call('HSET', key_of(index), field, before)
    local expires, words = unpacked(before)
    states[index] = expires > now and words
  end
  wrote = true
  return true
end

-- The mark of the newest units.
local function mark_of(words)
  return words[#words - 1]
end

-- Gives back what was charged to a level and still counts whole, others having written since: by its mark, within its
-- period, or, where charges fade, while even what was charged before lasts; later, time has given some of it back, and it
-- stays charged. So it does where a refund would take what the others have charged. Tells whether it was given back.
local function give_back(index)
  local period, phase, before = rules[index].period, input[phases_at + index], input[befores_at + index]
  local units, place = input[charged_units_at + index], input[places_at + index]
  if period == NEVER then return false end
  if period == BY_MARK then
    local mark = mark_of(select(2, unpacked(input[afters_at + index])))
    if not states[place] then return true end
    states[place] = runs_without(states[place], mark, units)
    decisions[index] = step(index, 0)
    put(index, states[place])
    return true
  end
  if period > 0 then
    if floor((charged_at - phase) / period) ~= floor((now - phase) / period) then return false end
  elseif before == '' or unpacked(before) <= now then
    return false
  end
  local decision, state = step(index, -units)
  decisions[index] = decision
  if state then put(index, state) end
  return true
end

-- Takes back what a plan has charged before it was refused elsewhere: exactly, where no one else has written since, else
-- what of it still counts. Then tells how the levels stand. As in settle_refusal, a state that a refusal cuts is kept.
local function undo()
  local restored = {}
  for index = 1, count do
    local place = input[places_at + index]
    if place == index then restored[index] = restore(index) end
    local stays = not restored[place] and input[charged_units_at + index] > 0 and not give_back(index)
    left_charged[index] = stays and 1 or 0
  end
  -- Those that count keep their charges, which a dry run has not written.
  if dry_run and charge > UNDOES then charge_counting() end
  for index = 1, count do
    local decision, state = step(index, charge == UNDOES and total_cost(index) or input[costs_at + index])
    decisions[index] = decision
    if decision[1] == 1 then
      decisions[index] = step(index, 0)
    elseif state and (charge == UNDOES or rules[index].shadow) and not rules[index].charges_denied then
      put(index, state)
    end
  end
end

local charges = {[0] = all_or_nothing, independent, all_or_nothing, independent, undo, undo}

-- The value to go back to when a level's charge is undone, and the value written; '', '': there is nothing to undo. Levels
-- that count keep their charges, so a shadow that shares their state goes back to the value that they left.
local function change(index)
  local own = input[places_at + index]
  local before, after = counted[own] or found[own] or '', written[own]
  if not after or after == before or rules[index].charges_denied then return '', '' end
  return before, after
end

local output, length = {now}, 1

local function tell(index)
  local said = decisions[index]
  output[length + 1], output[length + 2], output[length + 3], output[length + 4] = said[1], said[2], said[3], said[4]
  output[length + 5], output[length + 6], output[length + 7] = said[5], said[6], said[7]
  length = length + 7
  if said[3] == 0 then
    length = length + 1
    output[length] = said[8]
  end
end

-- Decides one plan as plan/decide.rs does. Of one that fails nothing is written, unless a right is missing for what
-- follows a write.
local function run()
  changed, wrote = false, false
  local tells, undoes = charge >= TELLS and charge < UNDOES, charge >= UNDOES
  if tells then written, counted = {}, {} end
  load()
  charges[charge]()
  if not dry_run then
    if changed then save() end
    hold()
  end
  output[length + 1] = 0
  length = length + 1
  for index = 1, count do
    tell(index)
    if tells then
      output[length + 1], output[length + 2] = change(index)
      length = length + 2
    elseif undoes then
      length = length + 1
      output[length] = left_charged[index]
    end
  end
end

-- All plans in a row: for each 0 and its decisions, or what is wrong with it behind 1 where nothing of it was written, else 2.
local function decide_all()
  while input[at] do
    local key_total = input[at + 2]
    read_plan()
    local done, failure = pcall(run)
    key_count = key_count + key_total
    if not done then
      held_hash = false
      output[length + 1], output[length + 2] = wrote and 2 or 1, type(failure) == 'table' and failure.err or tostring(failure)
      length = length + 2
    end
  end
  return output
end
