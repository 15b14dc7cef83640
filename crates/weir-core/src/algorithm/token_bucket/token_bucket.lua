local function token_bucket(p, s, now, cost, max_wait, phase)
  return tat_step(p, s, now, cost)
end
