local function fixed_window(p, s, now, cost, max_wait, phase)
  local count, period, charge_denied = p[1], p[2], p[3] == 1
  local start, used = aligned_window(s, now, period, phase)
  local left = start + period - now
  local function answer(used, allowed, never)
    local retry = (allowed or never) and -1 or left
    local reset = used > 0 and left or 0
    return {allowed and 1 or 0, count, math.max(count - used, 0), retry, reset, 0, (never and not allowed) and 1 or 0}
  end
  if cost < 0 then
    used = math.max(used + cost, 0)
    return answer(used, true, false), s and {start, used}
  end
  local allowed = used + cost <= count
  local charged = cost > 0 and (allowed or charge_denied)
  if charged then used = math.min(used + cost, 4503599627370496) end
  return answer(used, allowed, cost > count), charged and {start, used} or nil
end

local function fixed_window_charge(p, s, now, units, phase)
  local start, used = aligned_window(s, now, p[2], phase)
  return {start, math.min(used + units, 4503599627370496)}
end
