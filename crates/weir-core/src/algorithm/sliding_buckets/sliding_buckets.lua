local function sliding_buckets(p, s, now, cost, max_wait, phase)
  return sliding_step(p, s, now, cost)
end
