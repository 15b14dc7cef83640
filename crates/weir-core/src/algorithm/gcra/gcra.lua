local function gcra(p, s, now, cost, max_wait, phase)
  return tat_step(p, s, now, cost)
end
