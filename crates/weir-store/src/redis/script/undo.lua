-- Undo of a plan's charges.

-- Restores a state from before the plan, unless there was another write since. Returns whether it is undone.
local function restore(index)
  local field, before, after = input[fields_at + index], input[befores_at + index], input[afters_at + index]
  if after == '' then return true end
  if found[index] ~= after then return false end
  if levels then levels[index] = nil end
  if before == '' then
    call('HDEL', key_of(index), field)
    states[index] = false
  else
    call('HSET', key_of(index), field, before)
    local expires, state, ledger = unpacked(before)
    states[index] = expires > now and state
    if ledger then
      add_level(index, ledger, expires)
      expire(index)
    end
  end
  wrote = true
  return true
end

-- Whether a state from before the charge would still matter to its own limit. The stored one may last longer for others.
local function lasts_for(index, before)
  if before == '' then return false end
  local expires, state = unpacked(before)
  local rule = rules[index]
  return expires > now and state and rule.step(rule.params, state, now, 0, max_wait, input[phases_at + index])[5] > 0
end

-- Returns the mark of the newest units.
local function mark_of(state)
  return state[#state - 1]
end

-- Refunds a level's charge after other writes, if the whole charge still counts: by its mark, within its period or
-- window, or, with continuous refill, while the state from before the charge would matter to this limit. Later, time
-- has refilled some of it, so the charge stays. It also stays if a refund would take units charged by other plans.
-- Returns whether it was refunded.
local function refund(index)
  local period, phase, before = rules[index].period, input[phases_at + index], input[befores_at + index]
  local units, place = input[charged_units_at + index], input[states_at + index]
  if period == NEVER then return false end
  if period == BY_MARK then
    local mark = mark_of(select(2, unpacked(input[afters_at + index])))
    if not states[place] then return true end
    states[place] = rules[index].without(states[place], mark, units)
    decisions[index] = step(index, 0)
    put(index, states[place])
    return true
  end
  if period == WITHIN_WINDOW then
    local charged_to = select(2, unpacked(input[afters_at + index]))[1]
    if states[place] and states[place][1] ~= charged_to then return false end
  elseif period > 0 then
    if floor((charged_at - phase) / period) ~= floor((now - phase) / period) then return false end
  elseif not lasts_for(index, before) then
    return false
  end
  local decision, state = step(index, -units)
  decisions[index] = decision
  if state then put(index, state) end
  return true
end

-- Undoes a plan's charges after a refusal at another anchor, or all of them if that anchor has the id from another
-- request: exactly, if there was no other write since, else as far as they still count. Then reports the state of the
-- levels. As in settle_refusal, a state truncated by a refusal is stored.
local function undo()
  local restored = {}
  for index = 1, count do
    local place = input[states_at + index]
    if place == index then restored[index] = restore(index) end
    local stays = not restored[place] and input[charged_units_at + index] > 0 and not refund(index)
    left_charged[index] = stays and 1 or 0
  end
  if claims_charges then
    for index = 1, count do decisions[index] = step(index, 0) end
    return
  end
  -- Refusing shadows were already charged. If that was not undone, it stays.
  if over_limit_only then return charge_refusing(which_refuse(), restored) end
  -- Non-shadow levels keep their charges, which a dry run has not written.
  if dry_run and charge > UNDOES then charge_non_shadow() end
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
