-- Runs the plans of one call.

local put_record, reserve, answer_again, is_claimed, remember_answer, delete_answer
local undo

local function load_reservations()
  load_holds()
  if reserve then return end
  put_record, reserve, answer_again, is_claimed, remember_answer, delete_answer = reservations()
end

local function carry_out()
  if charge == OUTAGE_CHARGE then
    charge_outage()
  elseif charge >= UNDOES then
    undo = undo or undoing()
    undo()
  elseif over_limit_only then
    charge_over_limit_only()
  elseif charge % REPORTS == 0 then
    all_or_nothing()
  else
    independent()
  end
end

-- Returns the value to restore when a level's charge is undone, and the value written; '', '': nothing to undo.
-- Non-shadow levels keep their charges, so a shadow that shares their state restores the value that they left, except
-- with over_limit_only, where only refusing levels keep theirs.
local function change(index)
  local own = input[states_at + index]
  local before, after = not over_limit_only and counted[own] or found[own] or '', written[own]
  local stays = rules[index].charges_denied and total_cost(index) >= 0 and not over_limit_only
  if not after or after == before or stays then return '', '' end
  return before, after
end

local output, length = {now}, 1

-- Returns the node of a level: its path beyond its anchor, and the number of the anchor. Only the start of an ident is
-- \255, which is in no text.
local function node_of(index)
  return string.match(input[fields_at + index], '.*\255') .. input[keys_at + index]
end

-- Decides the plan, settles its renewal and grants units.
local function renew()
  load_holds()
  levels = levels or {}
  local deepest = node_of(count)
  for index = 1, count do
    if not levels[index] then add_level(index, {}) end
    own(levels[index])
    levels[index].above = node_of(index) ~= deepest
  end
  local _, granted, has_changed = holds.renew(levels, now, renewal, function()
    for index = 1, count do
      local settled = levels[index].s
      if settled ~= states[index] then states[index], resets[index] = settled, false end
    end
    carry_out()
    for index = 1, count do levels[index].s = resets[index] ~= 0 and states[index] end
    return decisions
  end)
  if has_changed then
    for index = 1, count do touch(index) end
  end
  return granted
end

-- Decides one plan like plan/decide.rs. A plan that fails has written nothing, unless a permission is missing for a
-- command after the first write.
local function run()
  changed, wrote = false, false
  local reports, undoes = charge >= REPORTS and charge < UNDOES, charge >= UNDOES
  if reports then written, counted = {}, {} end
  load()
  local granted, expires, content, fields, repeated
  if reservation or request then load_reservations() end
  local is_undone = undoes or reservation and reservation[2] >= SETTLE
  local stays = request and is_undone and is_claimed()
  if request and not is_undone then repeated, granted = answer_again() end
  if repeated then
    -- The recorded answer is repeated.
  elseif stays and undoes then
    -- The charge belongs to an attempt that was admitted, so it stays.
    for index = 1, count do decisions[index], left_charged[index] = step(index, 0), 0 end
  elseif renewal then
    granted = renew()
  elseif reservation then
    granted, expires, content, fields, repeated = reserve()
  else
    carry_out()
  end
  if not dry_run then
    if changed then save() end
    if expires then put_record(reservation[1], expires, content, fields) end
    if request and is_undone then
      if not stays then delete_answer() end
    elseif request and not repeated then
      remember_answer(granted)
    end
    cache()
  end
  output[length + 1] = 0
  length = length + 1
  for index = 1, count do
    local decision = decisions[index]
    local remaining = decision[3]
    output[length + 1], output[length + 2], output[length + 3], output[length + 4] = decision[1], decision[2], remaining, decision[4]
    output[length + 5], output[length + 6], output[length + 7] = decision[5], decision[6], decision[7]
    length = length + 7
    if remaining == 0 then
      length = length + 1
      output[length] = decision[8]
    end
    if reports then
      output[length + 1], output[length + 2] = change(index)
      length = length + 2
      if request then
        -- If another anchor has the id from another request, all of it is undone.
        local own = input[states_at + index]
        output[length + 1], output[length + 2] = found[own] or '', written[own] or ''
        length = length + 2
      end
    elseif undoes or charge == OUTAGE_CHARGE then
      length = length + 1
      output[length] = left_charged[index]
    end
  end
  if granted then
    for index = 1, #granted do output[length + index] = granted[index] end
    length = length + #granted
  end
  if request then
    length = length + 1
    output[length] = repeated or 0
  end
end

-- Offsets of the previous plan in the input, the keys and the output, if it changed nothing, as a check of a key at its
-- limit. Time is fixed during a call, so an identical plan has the same answer.
local repeatable, keys_before, output_before = false, 0, 0

-- Repeats the previous answer for an identical plan. Returns whether it was identical.
local function repeat_answer(key_total)
  for index = 1, key_total do
    if KEYS[key_count + index] ~= KEYS[keys_before + index] then return false end
  end
  local size = at - repeatable
  for index = at, at + size - 1 do
    if input[index] ~= input[index - size] then return false end
  end
  for index = output_before + 1, length do
    output[length + index - output_before] = output[index]
  end
  repeatable, keys_before, output_before, length = at, key_count, length, 2 * length - output_before
  at, key_count = at + size, key_count + key_total
  return true
end

-- Decides all plans in sequence. For each, the output has 0 and its decisions, or an error after 1 if the plan wrote
-- nothing, else 2.
local function decide_all()
  while input[at] do
    local key_total = input[at + 2]
    if not (repeatable and repeat_answer(key_total)) then
      repeatable, keys_before, output_before = at, key_count, length
      read_plan()
      local done, failure = pcall(run)
      key_count = key_count + key_total
      if not done then
        cached_hash = false
        output[length + 1], output[length + 2] = wrote and 2 or 1, type(failure) == 'table' and failure.err or tostring(failure)
        length = length + 2
      end
      if not done or changed or charge >= REPORTS or charge == OUTAGE_CHARGE or renewal or reservation or request then
        repeatable = false
      end
    end
  end
  return output
end
