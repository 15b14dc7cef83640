-- Records of requests, as reservation.rs and repeat.rs: fields of the hash of the plan's last key. Each has when it means
-- nothing any more, what it is, and then: while a reservation is open, the fields of the levels of which it holds units; of a
-- request with an id, its answer, and whether another attempt relies on it.

local OPEN, SETTLED, ANSWERED = 1, 2, 3
-- What is answered.
local RESERVED, REFUSED, HAS_SETTLED, EXTENDED, UNKNOWN, WAS_SETTLED = 1, 2, 3, 4, 5, 6
-- A settlement can be asked for again for so long.
local REPEATABLE_FOR = 60000000
local RETRY_WHEN_FULL = 1000000

-- The name of a level's state among all.
local function state_name(index)
  return key_of(index) .. input[fields_at + index]
end

-- The record of this name: when it means nothing any more, and the rest. Nothing where it has expired.
local function find_record(name)
  local value = call('HMGET', records_key, RECORDS .. name)[1]
  if not value then return end
  local expires, words, rest = unpacked(value)
  if expires > now then return expires, words, rest end
end

-- Writes a record, and makes the hash last for as long.
local function put_record(name, expires, words, rest)
  local hash = records_key
  local last = call('HMGET', hash, RECORDS)[1]
  last = last and unpacked(last) or 0
  local added
  if last < expires then
    -- An eighth more, so that not every one moves it.
    last = expires + floor((expires - now) / 8)
    added = call('HSET', hash, RECORDS .. name, pack(expires, words, rest), RECORDS, pack(last))
  else
    added = call('HSET', hash, RECORDS .. name, pack(expires, words, rest))
  end
  wrote = true
  local ttl, left = math.max(ceil((last - now) / 1000) + 1000, least_ttl), call('PTTL', hash)
  if left < ttl then call('PEXPIRE', hash, format('%d', ttl)) end
  if cached_left then cached_left = math.max(left, ttl) end
  if left >= 0 and own_clock then sweep(hash, added * LOOKS) end
end

-- The moment up to 1/16 of the time before it is over at which others end too.
local function reservation_deadline(ttl)
  local _, exponent = math.frexp(ttl)
  local grid = 2 ^ (exponent - 5)
  return floor((now + ttl) / grid) * grid
end

-- How long a reservation still holds its units; 0 where it is settled, or over.
local function time_left(name)
  local expires, words = find_record(name)
  return expires and words[1] == OPEN and expires - now or 0
end

-- What a reservation of so many units holds of a level: of a concurrency limit a slot.
local function held_units(index, units)
  return rules[index].slots and math.min(units, 1) or units
end

local function make_reservation(kind, deadline)
  local _, before = find_record(reservation[1])
  if before and before[1] == OPEN then
    -- It is there already, whoever asks again.
    for index = 1, count do
      decisions[index] = step(index, 0)
      decisions[index][1] = 1
    end
    return {RESERVED, time_left(reservation[1]), 0}
  end
  -- What has expired stays charged.
  local states_before, resets_before, changed_before = {unpack(states, 1, count)}, {unpack(resets, 1, count)}, changed
  all_or_nothing()
  changed = changed_before
  for index = 1, count do
    states[index], resets[index], levels[index].s = states_before[index], resets_before[index], states_before[index]
  end
  local held, units, passes, has_room = {}, input[costs_at + 1], true, true
  for index = 1, count do
    if decisions[index][1] == 1 then
      if units > 0 then
        if holds.has_room(levels[index].ledger, kind, deadline) then
          held[#held + 1] = index
        elseif not rules[index].shadow then
          has_room = false
        end
      end
    elseif not rules[index].shadow then
      passes = false
    end
  end
  if not passes then return {REFUSED, 0, 0} end
  if not has_room then
    for index = 1, count do
      decisions[index] = {0, decisions[index][2], 0, RETRY_WHEN_FULL, 0, 0, 0, RETRY_WHEN_FULL}
    end
    return {REFUSED, 0, 0}
  end
  local fields = {}
  for place = 1, #held do
    local index = held[place]
    holds.reserve(levels[index].ledger, kind, deadline, held_units(index, units))
    touch(index)
    decisions[index] = step(index, 0)
    fields[place] = state_name(index)
  end
  return {RESERVED, deadline - now, 0}, deadline, {OPEN, kind, units}, fields
end

-- The levels of which the reservation holds units: those that the policy still has.
local function held_levels(names)
  local held, is_held = {}, {}
  for place = 1, #names do is_held[names[place]] = true end
  for index = 1, count do
    if is_held[state_name(index)] then held[#held + 1] = index end
  end
  return held
end

local function settle_reservation(deadline, words, fields, actual)
  local kind, units = words[2], words[3]
  for _, index in ipairs(held_levels(fields)) do
    holds.settle_reserved(levels[index].ledger, kind, deadline, held_units(index, units))
    holds.charge(levels[index], actual, now)
    touch(index)
  end
  local overage = math.max(actual - units, 0)
  return {HAS_SETTLED, actual, overage}, now + REPEATABLE_FOR, {SETTLED, actual, overage}
end

local function extend_reservation(deadline, words, fields, ends)
  local kind, units, has_room = words[2], words[3], true
  -- What the policy does not have keeps its end, so it is not this reservation's any more.
  local held, kept = held_levels(fields), {}
  for place, index in ipairs(held) do kept[place] = state_name(index) end
  for _, index in ipairs(held) do
    if units > 0 then holds.settle_reserved(levels[index].ledger, kind, deadline, held_units(index, units)) end
  end
  for _, index in ipairs(held) do
    has_room = has_room and (units == 0 or holds.has_room(levels[index].ledger, kind, ends))
  end
  -- A full ledger keeps it where it was.
  if not has_room then ends = deadline end
  for _, index in ipairs(held) do
    if units > 0 then holds.reserve(levels[index].ledger, kind, ends, held_units(index, units)) end
    touch(index)
  end
  return {EXTENDED, ends - now, 0}, ends, words, kept
end

-- Whether another attempt was admitted by the answer to the request.
local function is_relied_on()
  local _, words = find_record(request[1])
  return words and words[1] == ANSWERED and words[4]
end

local function answer_of_record(task, value)
  local expires, words, fields = find_record(reservation[1])
  if not expires or words[1] == ANSWERED then return {UNKNOWN, 0, 0} end
  if words[1] == SETTLED then
    if task == EXTEND then return {UNKNOWN, 0, 0} end
    return {WAS_SETTLED, words[2], words[3]}
  end
  if task == EXTEND then return extend_reservation(expires, words, fields, reservation_deadline(value)) end
  if task ~= TAKE_BACK then return settle_reservation(expires, words, fields, value) end
  if request and is_relied_on() then return {RESERVED, expires - now, 0} end
  call('HDEL', records_key, RECORDS .. reservation[1])
  wrote = true
  return (settle_reservation(expires, words, fields, 0))
end

-- Carries out what is asked of a reservation: what is answered, and what is remembered of it, if that is new.
local function reserve()
  levels = levels or {}
  for index = 1, count do
    if not levels[index] then add_level(index, {}) end
  end
  local task, value = reservation[2], reservation[3]
  if task <= RESERVE_RELEASE then
    return make_reservation(task == RESERVE_RELEASE and holds.RELEASED or holds.KEPT, reservation_deadline(value))
  end
  local answer, expires, words, fields = answer_of_record(task, value)
  for index = 1, count do decisions[index] = step(index, 0) end
  return answer, expires, words, fields
end

-- Of a request that was answered before: 1, its decisions are told again; 2, another one has its id. And what became of the
-- reservation. Nothing: it is the first.
local function answer_again()
  local expires, words, before = find_record(request[1])
  if not expires then return end
  local is_same = words[1] == ANSWERED and words[2] == request[2] and words[3] == (reservation and 1 or 0)
  for index = 1, count do
    -- Where the policy has other limits since, how these stand.
    decisions[index] = is_same and #before == count and before[index] or step(index, 0)
  end
  if not is_same then return 2, reservation and {REFUSED, 0, 0} end
  if claims then
    words[4] = 1
    put_record(request[1], expires, words, before)
  end
  return 1, reservation and {RESERVED, time_left(reservation[1]), 0}
end

-- Whether the plan has changed what any level has left: charged it, or given it back.
local function has_charged()
  local passes = true
  for index = 1, count do
    if decisions[index][1] == 0 and not rules[index].shadow then passes = false end
  end
  for index = 1, count do
    local cost, rule = input[costs_at + index], rules[index]
    local allowed = decisions[index][1] == 1
    local alone = charge % TELLS == 1 and not over_limit_only and not rule.shadow
    local spared = over_limit_only and allowed
    local is_charged = allowed and (passes or alone) and not rule.slots or rule.charges_denied and not spared
    if cost < 0 or cost > 0 and is_charged then return true end
  end
  return false
end

-- What charges nothing is decided again, so that there are no more records than the limits admit requests.
local function remember_answer(outcome)
  local is_reserved = outcome and outcome[1] == RESERVED
  if not (is_reserved or not outcome and has_charged()) then return end
  local before = {}
  for index = 1, count do before[index] = decisions[index] end
  put_record(request[1], now + request[3], {ANSWERED, request[2], is_reserved and 1 or 0}, before)
end

-- What a request has charged is taken back, so its answer is none.
local function forget_answer()
  call('HDEL', records_key, RECORDS .. request[1])
end
