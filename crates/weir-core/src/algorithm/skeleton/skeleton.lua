local function skeleton(p, s, now, cost, max_wait, phase)
  local count, period = p[1], p[2]
  local start, before = aligned_window(s, now, period, 0)
  local left = start + period - now
  local used = math.max(before + cost, 0)
  local refused = cost >= 0 and used > count
  if refused then used = before end
  local never = refused and cost > count
  local decision = {
    refused and 0 or 1,
    count,
    math.max(count - used, 0),
    refused and not never and left or -1,
    used > 0 and left or 0,
    0,
    never and 1 or 0,
  }
  local changes = not refused and (cost > 0 or cost < 0 and s)
  return decision, changes and {start, used} or nil
end
