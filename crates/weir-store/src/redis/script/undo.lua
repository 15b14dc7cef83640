-- Taking back what a plan has charged.

-- Puts a state back to what it was before the plan, where no one else has written since; returns whether.
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
    local expires, words, ledger = unpacked(before)
    states[index] = expires > now and words
    if ledger then add_level(index, ledger) end
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
  -- Shadows that refuse were charged before; where that was not taken back, it stays.
  if over_limit_only then return charge_refusing(judged(), restored) end
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
