-- Returns the time into a window at which the weight of the units before it is at most `headroom`.
local function sliding_window_wait(headroom, before, period)
  local over = before - headroom
  if over <= 0 then return 0 end
  local each = floor(period / before)
  return over * each + math.ceil(over * (period - each * before) / before)
end

-- The answer for windows that started at `start`; `retry` is -1 for none.
local function sliding_window_answer(p, start, before, used, now, allowed, retry, never)
  local count, period = p[1], p[2]
  local into = math.max(now - start, 0)
  -- The weight of the previous window, rounded up: the product may exceed 2^53, so this is a guess, then corrected.
  local weight = math.ceil(before * (period - into) / period)
  while weight > 0 and sliding_window_wait(weight - 1, before, period) <= into do weight = weight - 1 end
  while sliding_window_wait(weight, before, period) > into do weight = weight + 1 end
  local reset = 0
  if used > 0 then reset = start + 2 * period - now elseif before > 0 then reset = start + period - now end
  return {allowed, count, math.max(count - used - weight, 0), retry, reset, 0, never}
end

-- Returns the start of the current window, the units used of the one before it, and those used of it.
local function sliding_window_at(s, now, period)
  local start = aligned_start(now, period, 0)
  if s and s[2] + s[3] > 0 and s[1] >= start then return s[1], s[2], s[3] end
  if s and start - s[1] <= period then return start, s[3], 0 end
  return start, 0, 0
end

local function sliding_window(p, s, now, cost, max_wait, phase)
  local count, period = p[1], p[2]
  local start, before, used = sliding_window_at(s, now, period)
  if cost < 0 then
    local left = math.max(used + cost, 0)
    before = math.max(before + cost + used - left, 0)
    return sliding_window_answer(p, start, before, left, now, 1, -1, 0), s and {start, before, left}
  end
  if cost > count then return sliding_window_answer(p, start, before, used, now, 0, -1, 1) end
  local headroom, at = count - used - cost
  if headroom >= 0 then
    at = sliding_window_wait(headroom, before, period)
  else
    at = period + sliding_window_wait(count - cost, used, period)
  end
  if at > math.max(now - start, 0) then
    return sliding_window_answer(p, start, before, used, now, 0, start + at - now, 0)
  end
  used = used + cost
  return sliding_window_answer(p, start, before, used, now, 1, -1, 0), cost > 0 and {start, before, used} or nil
end

local function sliding_window_charge(p, s, now, units, phase)
  local start, before, used = sliding_window_at(s, now, p[2])
  return {start, before, math.min(used + units, 67108864)}
end
