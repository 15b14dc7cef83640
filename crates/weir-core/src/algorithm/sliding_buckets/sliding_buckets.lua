local function sliding_buckets(p, s, now, cost, max_wait, phase)
  return sliding_step(p, s, now, cost)
end

local function sliding_buckets_charge(p, s, now, units, phase, held)
  return sliding_charge(p, s, now, units, held)
end

-- Returns the time until one unit passes, without a charge for refusals, which would come first.
local function sliding_buckets_next(p, s, now, max_wait, phase)
  return sliding_step({p[1], p[2], p[3], 0, 0, p[6]}, s, now, 1)[4]
end
