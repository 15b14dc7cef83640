local function sliding_buckets(p, s, now, cost, max_wait, phase)
  return sliding_step(p, s, now, cost)
end

local function sliding_buckets_charge(p, s, now, units, phase)
  return sliding_charge(p, s, now, units)
end
