-- Records of reservations and request ids, like reservation.rs and idempotency.rs: fields of the hash at the plan's
-- last key. A value has its expiry, its content, and then: for an open reservation, the names of the levels on which it
-- holds units; for a request with an id, its decisions. The latter's content is the type, the fingerprint, 1 if it made a
-- reservation, 1 if an attempt has claimed its charges, the digest of its levels, and whether it passed.

local OPEN, SETTLED, ANSWERED = 1, 2, 3
-- Outcomes of a reservation's step.
local RESERVED, REFUSED, HAS_SETTLED, EXTENDED, UNKNOWN, WAS_SETTLED = 1, 2, 3, 4, 5, 6
-- Time for which a settlement can be repeated, in microseconds.
local REPEATABLE_FOR = 60000000
local RETRY_WHEN_FULL = 1000000

-- Returns the unique name of a level's state.
local function state_name(index)
  return key_of(index) .. input[fields_at + index]
end

-- Returns the expiry, the content and the rest of a record; nothing if it is absent or expired.
local function find_record(name)
  local value = call('HMGET', records_key, RECORDS .. name)[1]
  if not value then return end
  local expires, content, rest = unpacked(value)
  if expires > now then return expires, content, rest end
end

-- Writes a record and extends the TTL of its hash.
local function put_record(name, expires, content, rest)
  local hash = records_key
  local last = call('HMGET', hash, RECORDS)[1]
  last = last and unpacked(last) or 0
  local added
  if last < expires then
    -- An eighth more, so that not every record moves it.
    last = expires + floor((expires - now) / 8)
    added = call('HSET', hash, RECORDS .. name, pack(expires, content, rest), RECORDS, pack(last))
  else
    added = call('HSET', hash, RECORDS .. name, pack(expires, content, rest))
  end
  wrote = true
  local ttl, left = math.max(ceil((last - now) / 1000) + 1000, least_ttl), call('PTTL', hash)
  if left < ttl then call('PEXPIRE', hash, format('%d', ttl)) end
  if cached_left then cached_left = math.max(left, ttl) end
  if left >= 0 and own_clock then sweep(hash, added * SWEEP_FIELDS) end
end

-- Rounds the deadline down, by at most 1/16 of the TTL, so that reservations share deadlines.
local function reservation_deadline(ttl)
  local _, exponent = math.frexp(ttl)
  local grid = 2 ^ (exponent - 5)
  return floor((now + ttl) / grid) * grid
end

-- Returns the time until a reservation expires; 0 if it is settled or expired.
local function time_left(name)
  local expires, content = find_record(name)
  return expires and content[1] == OPEN and expires - now or 0
end

-- Returns the units that a reservation holds on a level: one slot on a concurrency limit.
local function held_units(index, units)
  return rules[index].slots and math.min(units, 1) or units
end

local function make_reservation(kind, deadline)
  local _, before = find_record(reservation[1])
  if before and before[1] ~= ANSWERED then
    -- An earlier attempt made the reservation, which may be settled.
    for index = 1, count do
      decisions[index] = step(index, 0)
      decisions[index][1] = 1
    end
    return {RESERVED, time_left(reservation[1]), 0}, nil, nil, nil, 1
  end
  local states_before, resets_before, changed_before = {unpack(states, 1, count)}, {unpack(resets, 1, count)}, changed
  all_or_nothing()
  for index = 1, count do
    -- A refusal has stored no more than states that it truncated.
    if decisions[index][1] == 0 and not rules[index].shadow then return {REFUSED, 0, 0} end
  end
  -- Otherwise the decision is not stored; only the charges of expired holds remain.
  changed = changed_before
  for index = 1, count do
    states[index], resets[index], levels[index].s = states_before[index], resets_before[index], states_before[index]
  end
  local held, units, has_capacity = {}, input[costs_at + 1], true
  for index = 1, count do
    if decisions[index][1] == 1 and units > 0 then
      if holds.has_capacity(levels[index].ledger, kind, deadline) then
        held[#held + 1] = index
      elseif not rules[index].shadow then
        has_capacity = false
      end
    end
  end
  if not has_capacity then
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

-- Returns the levels on which the reservation holds units, as far as they are still in the policy.
local function held_levels(names)
  local held, is_held = {}, {}
  for place = 1, #names do is_held[names[place]] = true end
  for index = 1, count do
    if is_held[state_name(index)] then held[#held + 1] = index end
  end
  return held
end

local function settle_reservation(deadline, content, fields, actual)
  local kind, units = content[2], content[3]
  for _, index in ipairs(held_levels(fields)) do
    holds.settle_reserved(levels[index].ledger, kind, deadline, held_units(index, units))
    holds.charge(levels[index], actual, math.min(actual, units), now)
    touch(index)
  end
  local overage = math.max(actual - units, 0)
  return {HAS_SETTLED, actual, overage}, now + REPEATABLE_FOR, {SETTLED, actual, overage}
end

local function extend_reservation(deadline, content, fields, ends)
  local kind, units, has_capacity = content[2], content[3], true
  -- On levels that are no longer in the policy the old deadline stays, so they leave the reservation.
  local held, kept = held_levels(fields), {}
  for place, index in ipairs(held) do kept[place] = state_name(index) end
  for _, index in ipairs(held) do
    if units > 0 then holds.settle_reserved(levels[index].ledger, kind, deadline, held_units(index, units)) end
  end
  for _, index in ipairs(held) do
    has_capacity = has_capacity and (units == 0 or holds.has_capacity(levels[index].ledger, kind, ends))
  end
  -- If a ledger is full, the deadline stays.
  if not has_capacity then ends = deadline end
  for _, index in ipairs(held) do
    if units > 0 then holds.reserve(levels[index].ledger, kind, ends, held_units(index, units)) end
    touch(index)
  end
  return {EXTENDED, ends - now, 0}, ends, content, kept
end

-- Whether another attempt has claimed the charges of the request.
local function is_claimed()
  local _, content = find_record(request[1])
  return content and content[1] == ANSWERED and content[4]
end

local function answer_of_record(task, value)
  local expires, content, fields = find_record(reservation[1])
  if not expires or content[1] == ANSWERED then return {UNKNOWN, 0, 0} end
  if content[1] == SETTLED then
    if task == EXTEND then return {UNKNOWN, 0, 0} end
    return {WAS_SETTLED, content[2], content[3]}
  end
  if task == EXTEND then return extend_reservation(expires, content, fields, reservation_deadline(value)) end
  if task ~= UNDO_RESERVATION then return settle_reservation(expires, content, fields, value) end
  if request and is_claimed() then return {RESERVED, expires - now, 0} end
  call('HDEL', records_key, RECORDS .. reservation[1])
  wrote = true
  return (settle_reservation(expires, content, fields, 0))
end

-- Carries out a reservation's step. Returns the outcome, the record to store if it is new, and 1 if an earlier request
-- has made the reservation, though its answer is forgotten.
local function reserve()
  levels = levels or {}
  for index = 1, count do
    if not levels[index] then add_level(index, {}) end
    if levels[index] then own(levels[index]) end
  end
  local task, value = reservation[2], reservation[3]
  if task <= RESERVE_RELEASE then
    return make_reservation(task == RESERVE_RELEASE and holds.RELEASED or holds.KEPT, reservation_deadline(value))
  end
  local answer, expires, content, fields = answer_of_record(task, value)
  for index = 1, count do decisions[index] = step(index, 0) end
  return answer, expires, content, fields
end

-- Lets the preview of a limit that the policy has since pass or refuse as the recorded answer.
local function pass_as_recorded(index, has_passed, left)
  local decision = decisions[index]
  if has_passed == 1 then
    decision[1], decision[4], decision[7] = 1, -1, 0
  elseif has_passed == 0 and decision[1] == 1 and not rules[index].shadow then
    decision[1], decision[4] = 0, left
  end
end

-- Returns 1 for a repeated request, whose decisions are repeated, or 2 if another request has its id, with the outcome
-- of the reservation. Returns nothing for a first request.
local function answer_again()
  local expires, content, before = find_record(request[1])
  if not expires then return end
  local is_same = content[1] == ANSWERED and content[2] == request[2] and content[3] == (reservation and 1 or 0)
  local is_known = is_same and content[5] == request[4]
  for index = 1, count do
    decisions[index] = is_known and before[index] or step(index, 0)
    if is_same and not is_known then pass_as_recorded(index, content[6], expires - now) end
  end
  if not is_same then return 2, reservation and {REFUSED, 0, 0} end
  if claims_charges then
    content[4] = 1
    put_record(request[1], expires, content, before)
  end
  return 1, reservation and {RESERVED, time_left(reservation[1]), 0}
end

-- Whether all non-shadow levels allow.
local function passes_all()
  for index = 1, count do
    if decisions[index][1] == 0 and not rules[index].shadow then return false end
  end
  return true
end

-- Whether the plan has charged or refunded units.
local function has_charged(passes)
  for index = 1, count do
    local cost, rule = input[costs_at + index], rules[index]
    local allowed = decisions[index][1] == 1
    local alone = charge % REPORTS == 1 and not over_limit_only and not rule.shadow
    local spared = over_limit_only and allowed
    local is_charged = allowed and (passes or alone) and not rule.slots or rule.charges_denied and not spared
    if cost < 0 or cost > 0 and is_charged then return true end
  end
  return false
end

-- Records the answer, except of a request that charged nothing: that is decided again, so that there are no more
-- records than requests that the limits admit.
local function remember_answer(outcome)
  local is_reserved, passes = outcome and outcome[1] == RESERVED, passes_all()
  if not (is_reserved or not outcome and has_charged(passes)) then return end
  local before, has_passed = {}, is_reserved or passes or request[5] == 1
  for index = 1, count do before[index] = decisions[index] end
  local content = {ANSWERED, request[2], is_reserved and 1 or 0, false, request[4], has_passed and 1 or 0}
  put_record(request[1], now + request[3], content, before)
end

-- Deletes the record of a request whose charges were undone.
local function delete_answer()
  call('HDEL', records_key, RECORDS .. request[1])
end
