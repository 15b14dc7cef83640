local function gcra(p, s, now, cost, max_wait, phase)
  return tat_step(p, s, now, cost)
end

local function gcra_charge(p, s, now, units, phase)
  return tat_charge(p, s, now, units)
end
