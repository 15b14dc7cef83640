-- Retry time of a request that finds no free slot, in microseconds.
local concurrency_retry = 1000000

local function concurrency(p, s, now, cost, max_wait, phase)
  local max, ttl, held = p[1], p[2], s and s[1] or 0
  local free = math.max(max - held, 0)
  if cost < 0 or held + math.min(cost, 1) <= max then return {1, max, free, -1, 0, 0, 0} end
  return {0, max, free, math.min(concurrency_retry, ttl), 0, 0, 0}
end

-- Slots held at the time of a decision: created for it, and never stored.
local function concurrency_charge(p, s, now, units, phase)
  local held = math.min((s and s[1] or 0) + units, 9007199254740991)
  return held > 0 and {held} or nil
end
