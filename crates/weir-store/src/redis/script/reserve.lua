-- Reservations, as reservation.rs. The record of one is a field of the hash of the plan's last level: when it means nothing any
-- more, what became of it, and while it is open the fields of the levels of which it holds units.

-- A block of its own, since Lua has 200 locals at most.
local put_record, reserve
do
  local OPEN, SETTLED = 1, 2
  -- What is answered.
  local RESERVED, REFUSED, HAS_SETTLED, EXTENDED, UNKNOWN = 1, 2, 3, 4, 5
  -- A settlement can be asked for again for at least so long.
  local REPEATABLE_FOR = 60000000
  local RETRY_WHEN_FULL = 1000000

  local function record_field()
    return RECORDS .. reservation[1]
  end

  -- Writes the record, and makes the hash last for as long.
  function put_record(expires, words, fields)
    local hash, ends = key_of(count), expires
    if fields then
      local value = call('HMGET', hash, RECORDS)[1]
      ends = math.max(expires, value and unpacked(value) or 0)
      call('HSET', hash, record_field(), pack(expires, words, fields), RECORDS, pack(ends))
    else
      call('HSET', hash, record_field(), pack(expires, words))
    end
    wrote = true
    local ttl = math.max(ceil((ends - now) / 1000) + 1000, least_ttl)
    if call('PTTL', hash) < ttl then call('PEXPIRE', hash, format('%d', ttl)) end
  end

  -- The moment up to 1/16 of the time before it is over at which others end too.
  local function reservation_deadline(ttl)
    local _, exponent = math.frexp(ttl)
    local grid = 2 ^ (exponent - 5)
    return floor((now + ttl) / grid) * grid
  end

  local function make_reservation(kind, deadline)
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
          held[#held + 1] = index
          has_room = has_room and hold_has_room(levels[index].ledger, kind, deadline)
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
      hold_reserve(levels[index].ledger, kind, deadline, units)
      touch(index)
      decisions[index] = step(index, 0)
      fields[place] = input[fields_at + index]
    end
    return {RESERVED, deadline - now, 0}, deadline, {OPEN, kind, units}, fields
  end

  -- The levels of which the reservation holds units: those that the policy still has, in the record's order.
  local function held_levels(fields)
    local held, at_field = {}, 1
    for index = 1, count do
      for place = at_field, #fields do
        if fields[place] == input[fields_at + index] then
          held[#held + 1], at_field = index, place + 1
          break
        end
      end
    end
    return held
  end

  local function settle_reservation(deadline, words, fields, actual)
    local kind, units = words[2], words[3]
    for _, index in ipairs(held_levels(fields)) do
      hold_settle_reserved(levels[index].ledger, kind, deadline, units)
      hold_charge(levels[index], actual, now)
      touch(index)
    end
    local overage = math.max(actual - units, 0)
    return {HAS_SETTLED, actual, overage}, math.max(deadline, now + REPEATABLE_FOR), {SETTLED, actual, overage}
  end

  local function extend_reservation(deadline, words, fields, ends)
    local kind, units, has_room = words[2], words[3], true
    local held = held_levels(fields)
    for _, index in ipairs(held) do
      has_room = has_room and (units == 0 or hold_has_room(levels[index].ledger, kind, ends))
    end
    -- A full ledger keeps it where it is.
    if not has_room then ends = deadline end
    for _, index in ipairs(held) do
      if units > 0 then
        hold_settle_reserved(levels[index].ledger, kind, deadline, units)
        hold_reserve(levels[index].ledger, kind, ends, units)
      end
      touch(index)
    end
    return {EXTENDED, ends - now, 0}, ends, words, fields
  end

  local function answer_of_record(task, value)
    local found_record = call('HMGET', key_of(count), record_field())[1]
    local expires, words, fields
    if found_record then expires, words, fields = unpacked(found_record) end
    if not expires or expires <= now then return {UNKNOWN, 0, 0} end
    if words[1] == SETTLED then
      if task == EXTEND then return {UNKNOWN, 0, 0} end
      return {HAS_SETTLED, words[2], words[3]}
    end
    if task == EXTEND then return extend_reservation(expires, words, fields, reservation_deadline(value)) end
    return settle_reservation(expires, words, fields, value)
  end

  -- Carries out what is asked of a reservation: what is answered, and what is remembered of it, if that is new.
  function reserve()
    levels = levels or {}
    for index = 1, count do
      if not levels[index] then add_level(index, {}) end
    end
    local task, value = reservation[2], reservation[3]
    if task <= RESERVE_RELEASE then
      return make_reservation(task == RESERVE_RELEASE and RELEASED or KEPT, reservation_deadline(value))
    end
    local answer, expires, words, fields = answer_of_record(task, value)
    for index = 1, count do decisions[index] = step(index, 0) end
    return answer, expires, words, fields
  end
end
