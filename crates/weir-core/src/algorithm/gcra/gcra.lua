local gcra = tat_step

local function gcra_charge(p, s, now, units, phase, held)
  return tat_charge(p, s, now, units, held)
end

local function gcra_kept(s, p)
  return tat_kept(s, p[7])
end
