local function token_bucket(p, s, now, cost, max_wait, phase)
  return tat_step(p, s, now, cost)
end

local function token_bucket_charge(p, s, now, units, phase)
  return tat_charge(p, s, now, units)
end
