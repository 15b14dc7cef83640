-- The charge modes, like plan/decide.rs.

-- Returns the total cost of all levels that share the state of `index`.
local function total_cost(index)
  return duplicates and totals[input[states_at + index]] or input[costs_at + index]
end

-- Returns the time until a unit is available in a state that has none after this decision: see Algorithm::next_after.
local function next_after(rule, decision, state, units, phase)
  if rule.next then return rule.next(rule.params, state, now, max_wait, phase) end
  if units == 1 and decision[1] == 0 then return decision[4] end
  return rule.step(rule.params, state, now, 1, max_wait, phase)[4]
end

local function step(index, units)
  local rule, place = rules[index], input[states_at + index]
  -- A state that an earlier level of this plan has refilled counts as absent, like an expired one.
  local state = resets[place] ~= 0 and states[place]
  local level, phase = levels and levels[place], input[phases_at + index]
  local decision, next_state, stands
  if level then
    level.s = state
    decision, next_state, stands = holds.step(level, now, units, max_wait)
  else
    decision, next_state = rule.step(rule.params, state, now, units, max_wait, phase)
  end
  if decision[3] == 0 then
    decision[8] = next_after(rule, decision, stands or next_state or state, units, phase)
  end
  return decision, next_state
end

local function put(index, state)
  local place = input[states_at + index]
  states[place], resets[place], changed = state, lasts(rules[index], rules[index].params, state, decisions[index][5]), true
end

local function charges_anyway(index, units)
  return units > 0 and rules[index].charges_denied
end

-- After a refusal, only levels that charge denied requests are charged; the others report their uncharged state. A
-- refusing level may truncate a state that another limit made, which is stored too.
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
    local decision, state
    if levels or duplicates then
      decision, state = step(index, total_cost(index))
    else
      -- Inlined from `step`, because a function call takes longer than its body.
      local rule, units, phase = rules[index], input[costs_at + index], input[phases_at + index]
      decision, state = rule.step(rule.params, states[index], now, units, max_wait, phase)
      if decision[3] == 0 then decision[8] = next_after(rule, decision, state or states[index], units, phase) end
    end
    decisions[index], next_states[index] = decision, state or false
    if decision[1] == 0 and not rules[index].shadow then passes = false end
  end
  if not passes then return settle_refusal() end
  for index = 1, count do
    local state = next_states[index]
    if state then
      local place, reset = input[states_at + index], decisions[index][5]
      if state[4] or levels or rules[index].is_scaled then reset = lasts(rules[index], rules[index].params, state, reset) end
      states[place], resets[place], changed = state, reset, true
    end
  end
end

-- Charges the non-shadow levels that pass. Returns whether all of them do.
local function charge_non_shadow()
  local allowed, state = true
  for index = 1, count do
    if not rules[index].shadow then
      decisions[index], state = step(index, input[costs_at + index])
      if state then
        put(index, state)
        if charge >= REPORTS then
          local place = input[states_at + index]
          counted[place] = value_of(place, resets[place], state)
        end
      end
      allowed = allowed and decisions[index][1] == 1
    end
  end
  return allowed
end

-- Non-shadow levels go first: they determine whether shadows are charged.
local function independent()
  local allowed, state = charge_non_shadow()
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

-- Returns which levels refuse, each by its own cost, and whether all non-shadow levels pass.
local function which_refuse()
  local refuses, passes = {}, true
  for index = 1, count do
    refuses[index] = step(index, input[costs_at + index])[1] == 0
    if refuses[index] and not rules[index].shadow then passes = false end
  end
  return refuses, passes
end

-- Charges only the refusing levels; the others report their state. With `puts`, only its states are stored.
local function charge_refusing(refuses, puts)
  for index = 1, count do
    local state
    decisions[index], state = step(index, refuses[index] and input[costs_at + index] or 0)
    if state and (not puts or puts[input[states_at + index]]) then put(index, state) end
  end
end

local function charge_over_limit_only()
  local refuses, passes = which_refuse()
  if passes then return independent() end
  charge_refusing(refuses)
end
