local function sliding_log(p, s, now, cost, max_wait, phase)
  return sliding_step(p, s, now, cost)
end

local function sliding_log_charge(p, s, now, units, phase)
  return sliding_charge(p, s, now, units)
end
