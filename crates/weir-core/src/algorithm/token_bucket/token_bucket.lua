local token_bucket = tat_step

local function token_bucket_charge(p, s, now, units, phase, held)
  return tat_charge(p, s, now, units, held)
end

local function token_bucket_kept(s, p)
  return tat_kept(s, p[7])
end
