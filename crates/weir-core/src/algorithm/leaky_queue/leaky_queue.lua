local function leaky_queue(p, s, now, cost, max_wait, phase)
  local meter, den = p, p[4]
  if max_wait >= 0 and span_less(p[11] + max_wait, p[12], p[5], p[6]) then
    local di, dn = p[11] + max_wait, p[12]
    meter = {span_units(di, dn, p[2], p[3], den, p[1]), p[2], p[3], den, di, dn, p[7], p[8], p[9]}
  end
  local answer, next_state = tat_step(meter, s, now, cost)
  answer[2] = p[10]
  if cost < 0 or (cost > 0 and answer[1] == 0) then return answer, next_state end
  local at, ti, tn = next_state or s, now, 0
  if at then
    ti, tn = at[1], at[2]
    if at[3] ~= p[7] or tn >= den or at[4] then ti, tn = tat_read(at, now, p[7], p[8], p[9], den) end
  end
  local wi, wn = span_sub(ti, tn, p[11], p[12], den)
  answer[1], answer[4], answer[6] = 1, -1, math.max(span_ceil(wi, wn) - now, 0)
  return answer, next_state
end

local function leaky_queue_kept(s, p)
  return tat_kept(s, p[7])
end
