-- A refund of more units than were reserved in the latest cycle, which has not started. Returns
-- start, used, has_started.
local function cycle_refunded(count, period, start, used, units, current)
  units = units - used
  local cycles = math.floor(units / count) + 1
  if cycles > (start - current) / period then return current, 0, true end
  start = start - cycles * period
  return start, count - units % count, start == current
end

local function cycle(p, s, now, cost, max_wait, phase)
  local count, period = p[1], p[2]
  local start, used = aligned_window(s, now, period, 0)
  local has_started = used > 0 or start <= now
  used = math.abs(used)
  local left = math.max(count - used, 0)
  local function answer(allowed, retry, wait, never)
    local remaining = has_started and math.max(count - used, 0) or 0
    local reset = used > 0 and start + period - now or 0
    return {allowed, count, remaining, retry, reset, wait, never}
  end
  if cost < 0 then
    if used + cost > 0 or has_started then
      used = math.max(used + cost, 0)
    else
      start, used, has_started = cycle_refunded(count, period, start, used, -cost, aligned_start(now, period, 0))
    end
    return answer(1, -1, 0, 0), s and {start, has_started and used or -used}
  end
  if cost == 0 then return answer(1, -1, has_started and 0 or start - now, 0) end
  if cost > count then return answer(0, -1, 0, 1) end
  local ahead = cost > left
  local wait = (ahead and start + period or start) - now
  if has_started and not ahead then wait = 0 end
  local accepted = math.max(accepted_wait(p[3], max_wait), 0)
  if wait > accepted then return answer(0, wait - accepted, 0, 0) end
  if ahead then
    start, used, has_started = start + period, cost - left, false
  else
    used = used + cost
  end
  return answer(1, -1, wait, 0), {start, has_started and used or -used}
end

local function cycle_next(p, s, now, max_wait, phase)
  local start, used = aligned_window(s, now, p[2], 0)
  return (math.abs(used) < p[1] and start or start + p[2]) - now
end
