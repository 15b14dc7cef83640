-- Returns the end of the calendar window around `now`, from `edges`. A charge of long ago is in none of them: for it
-- any window that has ended is right.
local function fixed_window_end(now, edges, is_charge)
  if is_charge and now < edges[1] then return edges[1] end
  for index = 2, now >= edges[1] and #edges or 0 do
    if now < edges[index] then return edges[index] end
  end
  error({err = string.format('CLOCK no window is told for %.0f us since the epoch', now)})
end

-- Returns the end of the window to count in, the first number of its state, and the units used of it. A period of 0
-- means windows of a calendar: then `phase` has the edges, and states have the end instead of the start.
local function fixed_window_at(p, s, now, phase, is_charge)
  local period = p[2]
  if period > 0 then
    local start, used = aligned_window(s, now, period, phase)
    return start + period, start, used
  end
  if s and s[2] ~= 0 and s[1] > now then return s[1], s[1], s[2] end
  local ends = fixed_window_end(now, phase, is_charge)
  return ends, ends, 0
end

local function fixed_window(p, s, now, cost, max_wait, phase)
  local count, charge_denied = p[1], p[3] == 1
  local ends, mark, used = fixed_window_at(p, s, now, phase)
  local left = ends - now
  local function answer(used, allowed, never)
    local retry = (allowed or never) and -1 or left
    local reset = used > 0 and left or 0
    return {allowed and 1 or 0, count, math.max(count - used, 0), retry, reset, 0, (never and not allowed) and 1 or 0}
  end
  if cost < 0 then
    used = math.max(used + cost, 0)
    return answer(used, true, false), s and {mark, used}
  end
  local allowed = used + cost <= count
  local charged = cost > 0 and (allowed or charge_denied)
  if charged then used = math.min(used + cost, 4503599627370496) end
  return answer(used, allowed, cost > count), charged and {mark, used} or nil
end

local function fixed_window_charge(p, s, now, units, phase)
  local _, mark, used = fixed_window_at(p, s, now, phase, true)
  return {mark, math.min(used + units, 4503599627370496)}
end
