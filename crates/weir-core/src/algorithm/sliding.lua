-- An exact sliding window, as in sliding.rs: {most, resolution, span, min_interval, charge denied, last mark,
-- most of any limit}.

local function sliding_step(p, s, now, cost, held)
  if cost < 0 then
    local left = s and runs_cut(s, -cost)
    local decision = sliding_step(p, left, now, 0)
    decision[1], decision[4] = 1, -1
    return decision, left
  end
  local most, resolution, span, min_interval = p[1], p[2], p[3], p[4]
  local size, newest, units = 0, 0, 0
  if s then
    size = #s - 2
    newest, units = s[size + 1], s[size + 2]
  end
  if newest > p[6] then newest, units = 0, 0 end
  local t = math.max(now, newest * resolution)
  local after, mark, more = 1, 0, 0
  if units > 0 then
    after, mark, more = runs_next(s, size, 1, 0)
    while mark * resolution + span <= t do
      units = units - more - 1
      if units == 0 then break end
      after, mark, more = runs_next(s, size, after, mark)
    end
  end
  local rests_until = units > 0 and newest * resolution + min_interval or 0
  local allowed = units + cost <= most and (cost == 0 or t >= rests_until)
  local numbers
  if cost > 0 and (allowed or p[5] == 1) then
    local keep = math.max(most, units)
    if held then keep = math.max(keep, math.min(units + held, p[7])) end
    local added = math.min(cost, keep)
    local excess = units + added - keep
    if excess >= units then
      units = 0
    elseif excess > 0 then
      after, mark, more = runs_find(s, size, after, mark, more, excess + 1)
      units = units - excess
    end
    local at = math.floor(t / resolution)
    numbers, size = runs_with(s, size, after, mark, more, newest, units, at, added)
    newest, units = at, units + added
    numbers[size + 1], numbers[size + 2] = newest, units
    rests_until = newest * resolution + min_interval
    if not allowed then
      s = numbers
      after, mark, more = runs_next(s, size, 1, 0)
    end
  end
  local retry = -1
  if not allowed and cost <= most then
    retry = cost > 0 and rests_until or 0
    local excess = units + cost - most
    if excess > 0 then
      after, mark = runs_find(s, size, after, mark, more, excess)
      retry = math.max(retry, mark * resolution + span)
    end
    retry = retry - now
  end
  local remaining = t < rests_until and 0 or math.max(most - units, 0)
  local reset = units > 0 and newest * resolution + span - now or 0
  return {allowed and 1 or 0, most, remaining, retry, reset, 0, (not allowed and cost > most) and 1 or 0}, numbers
end

-- Returns the state with `units` charged now, whether they fit or not; `held` of them were held.
local function sliding_charge(p, s, now, units, held)
  local _, numbers = sliding_step({p[1], p[2], p[3], 0, 1, p[6], p[7]}, s, now, units, held)
  return numbers
end
