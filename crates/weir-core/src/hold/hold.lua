-- Holds, as in ledger.rs and authority.rs. A ledger is a list of {id, sequence, spent, units, granted, deadline}, a
-- renewal is {id, sequence, spent, kept, want, ttl}. A level is a table: `step` and `charge` are the functions of its
-- algorithm, `p` its parameters, `base` those without the request's factor, by which units are held, `s` its state or
-- false, `ledger` its ledger, `phase` its phase, `slots` whether the units held are slots, and, in a renewal, `above`
-- whether it is above another level.

-- As in Rust; the TTL in microseconds.
local MAX_HOLDS, MAX_LEASES_ABOVE, HOLD_TTL = 128, 16, 60000000
-- MAX_COST: no owner is granted more in one call.
local MAX_SPENT = 2 ^ 32
-- Instead of an id: all reservations of one deadline whose units are kept, or returned, when they
-- expire.
local KEPT, RELEASED = 'k', 'r'

-- Returns the outstanding units and their last deadline.
local function hold_outstanding(ledger)
  local units, last = 0, 0
  for index = 1, #ledger do
    local hold = ledger[index]
    if hold[4] > 0 then
      units = units + hold[4]
      if hold[6] > last then last = hold[6] end
    end
  end
  return units, last
end

-- Returns the last deadline of the holds, also of those without units.
local function hold_last_deadline(ledger)
  local last = 0
  for index = 1, #ledger do last = math.max(last, ledger[index][6]) end
  return last
end

-- Returns how long a state matters with its outstanding units. These may count as spent as late as at their deadline,
-- on top of the state at that time, if that has not expired. A window may start in between. Cached
-- in the level: of a key at its limit, neither changes between the plans of a call.
local function hold_lasts(level, now, state, units, last)
  local known = level.lasts
  if known and known[1] == state and known[2] == units and known[3] == last and known[4] == now then return known[5] end
  local step, charge, p, phase, late = level.step, level.charge, level.base, level.phase, math.max(last, now)
  local lasts = step(p, charge(p, state, late, units, phase, units) or state, late, 0, -1, phase)[5]
  if state then lasts = math.max(lasts, step(p, charge(p, false, late, units, phase, units), late, 0, -1, phase)[5]) end
  level.lasts = {state, units, last, now, late - now + lasts}
  return late - now + lasts
end

-- Returns the state with the outstanding units charged, also cached in the level.
local function hold_on_top(level, now, units)
  local known, state = level.on_top, level.s
  if known and known[1] == state and known[2] == units and known[3] == now then return known[4] end
  local all = level.charge(level.base, state, now, units, level.phase, units) or state
  level.on_top = {state, units, now, all}
  return all
end

-- Returns the time until a level's state and ledger expire. A charge made later counts for at least as long, so this
-- is never less than the result of a step now.
local function hold_reset(level, now)
  local units, last = hold_outstanding(level.ledger)
  if units == 0 then return level.step(level.base, level.s, now, 0, -1, level.phase)[5] end
  return hold_lasts(level, now, level.s, units, last)
end

-- One level's step, with the outstanding units charged: returns the decision, and the next state without and with
-- them.
local function hold_step(level, now, cost, max_wait)
  local step, charge, p, s, phase = level.step, level.charge, level.p, level.s, level.phase
  local units, last = hold_outstanding(level.ledger)
  if units == 0 then return step(p, s, now, cost, max_wait, phase) end
  local decision, state, all
  if cost < 0 then
    -- Outstanding units cannot be refunded.
    decision, state = step(p, s, now, cost, max_wait, phase)
    all = charge(level.base, state or s, now, units, phase, units) or state or s
    local stands = step(p, all, now, 0, max_wait, phase)
    decision[3], decision[5] = stands[3], stands[5]
  else
    all = hold_on_top(level, now, units)
    decision, state = step(p, all, now, cost, max_wait, phase)
    all = state or all
    if cost > 0 and decision[1] == 0 then
      -- A refusal stores a state that is clamped without the outstanding units too: a cost that never passes changes
      -- nothing else.
      state = select(2, step(p, s, now, decision[2] + 1, max_wait, phase))
    elseif state and cost > 0 then
      state = charge(p, s, now, cost, phase, cost)
    elseif state then
      state = select(2, step(p, s, now, cost, max_wait, phase))
    end
  end
  decision[5] = math.max(decision[5], hold_lasts(level, now, state or s, units, last))
  return decision, state, all
end

-- Charges units at the time `at`, of which `held` were held. Slots are not charged: they count only while held.
local function hold_charge(level, units, held, at)
  if units == 0 or level.slots then return end
  level.s = level.charge(level.base, level.s, at, units, level.phase, held) or level.s
end

-- Removes holds past their deadlines, the earliest first. Their units are charged unless they are released.
local function hold_expire(level, now)
  local ledger = level.ledger
  while #ledger > 0 do
    local first = 1
    for index = 2, #ledger do
      if ledger[index][6] < ledger[first][6] then first = index end
    end
    local hold = ledger[first]
    if hold[6] > now then return end
    ledger[first] = ledger[#ledger]
    ledger[#ledger] = nil
    if hold[1] ~= RELEASED then hold_charge(level, hold[4], hold[4], hold[6]) end
  end
end

-- Returns the holds that have not expired, and whether any of the others has units that would be burnt next.
local function hold_forget_expired(ledger, now)
  local live, counts = {}, false
  for index = 1, #ledger do
    local hold = ledger[index]
    if hold[6] > now then
      live[#live + 1] = hold
    else
      counts = counts or (hold[4] > 0 and hold[1] ~= RELEASED)
    end
  end
  return live, counts
end

local function hold_find(ledger, id)
  for index = 1, #ledger do
    if ledger[index][1] == id then return ledger[index] end
  end
end

local function hold_deadline(renewal, now)
  return now + math.max(math.min(renewal[6], HOLD_TTL), 1)
end

-- Settles a renewal. Returns its kind ('new', 'next', 'again' or 'overtaken'), the units granted before if it is
-- repeated, whether the kept units are held, and the units spent, returned and burnt. 'idle' is the
-- next renewal of a hold without units, of which none were spent: the hold stays unchanged unless
-- units are granted. So a late or repeated renewal may be granted units, which the next one
-- returns.
local function hold_settle(level, renewal, now)
  local hold = hold_find(level.ledger, renewal[1])
  if not hold then return 'new', 0, false, 0, 0, renewal[4] end
  if renewal[2] < hold[2] then return 'overtaken', 0, false, 0, 0, 0 end
  if renewal[2] == hold[2] then return 'again', hold[5], renewal[4] + hold[5] <= hold[4], 0, 0, 0 end
  local spent = math.min(math.max(renewal[3] - hold[3], 0), MAX_SPENT)
  if hold[4] == 0 and spent == 0 and renewal[4] == 0 then return 'idle', 0, true, 0, 0, 0 end
  local held = math.min(hold[4], spent)
  local left = hold[4] - held
  local is_kept = renewal[4] <= left
  hold[2], hold[3], hold[4], hold[5] = renewal[2], renewal[3], is_kept and renewal[4] or 0, 0
  hold[6] = hold_deadline(renewal, now)
  hold_charge(level, spent, held, now)
  return 'next', 0, is_kept, spent, left - hold[4], 0
end

-- Grants a share of the units that are free on all levels, or none.
local function hold_grant(levels, free, renewal, now)
  if math.min(free, renewal[5]) == 0 then return 0 end
  local holders, below = 1, nil
  for index = #levels, 1, -1 do
    local ledger, count, reserved, leases = levels[index].ledger, 1, 0, 0
    for at = 1, #ledger do
      local id = ledger[at][1]
      if id ~= KEPT and id ~= RELEASED then leases = leases + 1 end
      if ledger[at][4] > 0 then
        -- All reservations count as one owner.
        if id == KEPT or id == RELEASED then
          reserved = 1
        elseif id ~= renewal[1] then
          count = count + 1
        end
      end
    end
    -- Of the deepest level, which is the first one here.
    below = below or leases
    local is_full = #ledger >= MAX_HOLDS or levels[index].above and leases >= MAX_LEASES_ABOVE + below
    if is_full and not hold_find(ledger, renewal[1]) then return 0 end
    holders = math.max(holders, count + reserved)
  end
  local units = math.min(renewal[5], math.max(math.floor(free / (2 * holders)), 1))
  for index = 1, #levels do
    local ledger = levels[index].ledger
    local hold = hold_find(ledger, renewal[1])
    if hold then
      hold[2], hold[3], hold[4], hold[5] = renewal[2], renewal[3], hold[4] + units, units
      hold[6] = hold_deadline(renewal, now)
    else
      ledger[#ledger + 1] = {renewal[1], renewal[2], renewal[3], units, units, hold_deadline(renewal, now)}
    end
  end
  return units
end

-- Returns for how long a refused request would be refused again, if no other holder has units.
local function hold_refused_for(levels, decisions, renewal)
  local longest = 0
  for index = 1, #levels do
    local others = 0
    for _, hold in ipairs(levels[index].ledger) do
      if hold[1] ~= renewal[1] then others = others + hold[4] end
    end
    if others == 0 then longest = math.max(longest, math.min(decisions[index][4], renewal[6])) end
  end
  return longest
end

-- Settles a renewal, calls `decide`, which is given the levels and leaves them charged, and grants units. Returns the
-- decisions; {units, free, whether the kept units are held, whether the hold is recalled, for how long the request
-- would be refused, and the units granted now, spent, returned and burnt}; and whether ledgers have changed.
local function hold_renew(levels, now, renewal, decide)
  local first, has_changed
  for index = 1, #levels do
    hold_expire(levels[index], now)
    local settled = {hold_settle(levels[index], renewal, now)}
    first = first or settled
    has_changed = has_changed or settled[1] == 'next'
  end
  local decisions = decide(levels)
  local standing, is_kept = first[1], first[3] and 1 or 0
  if standing == 'overtaken' or standing == 'again' then return decisions, {first[2], 0, is_kept, 0, 0, 0, 0, 0, 0}, has_changed end
  local free, is_above = decisions[1][3], false
  for index = 1, #levels do
    free = math.min(free, decisions[index][3])
    if decisions[index][1] == 0 then is_above = true end
  end
  local units = hold_grant(levels, free, renewal, now)
  local is_recalled = renewal[4] > 0 and is_above
  return decisions, {
    units, free - units, is_kept, is_recalled and 1 or 0, hold_refused_for(levels, decisions, renewal),
    units, first[4], first[5], first[6],
  }, has_changed or units > 0
end

-- Returns the index of the entry of reservations of this kind and deadline, if any.
local function hold_reserved(ledger, kind, deadline)
  for index = 1, #ledger do
    if ledger[index][1] == kind and ledger[index][6] == deadline then return index end
  end
end

-- Reservations may use half of a ledger; the other half is for leases.
local function hold_has_capacity(ledger, kind, deadline)
  local own = 0
  for index = 1, #ledger do
    if ledger[index][1] == KEPT or ledger[index][1] == RELEASED then own = own + 1 end
  end
  return #ledger < MAX_HOLDS and own < MAX_HOLDS / 2 or hold_reserved(ledger, kind, deadline)
end

local function hold_reserve(ledger, kind, deadline, units)
  local index = hold_reserved(ledger, kind, deadline)
  if index then
    ledger[index][4] = ledger[index][4] + units
  else
    ledger[#ledger + 1] = {kind, 0, 0, units, 0, deadline}
  end
end

local function hold_settle_reserved(ledger, kind, deadline, units)
  local index = hold_reserved(ledger, kind, deadline)
  if not index then return end
  ledger[index][4] = ledger[index][4] - units
  if ledger[index][4] <= 0 then
    ledger[index] = ledger[#ledger]
    ledger[#ledger] = nil
  end
end
