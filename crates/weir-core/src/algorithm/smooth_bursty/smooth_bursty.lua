local function smooth_bursty(p, s, now, cost, max_wait, phase)
  local den, max_burst, limit = p[3], p[4], p[5]
  local ti, tn, cut = now, 0, nil
  if s then
    ti, tn = s[1], s[2]
    if s[3] ~= p[7] or tn >= den then ti, tn, cut = tat_foreign(s, p[7], p[8], p[9], now) end
    cut = cut and {ti, tn, p[7]} or nil
    if ti < now then ti, tn = now, 0 end
  end
  local function answer(allowed, retry, wait, never)
    local ri, rn = span_sub(now + max_burst, 0, ti, tn, den)
    local remaining = span_units(ri, rn, p[1], p[2], den, limit)
    return {allowed, limit, remaining, retry, span_ceil(ti, tn) - now, wait, never}
  end
  if cost < 0 then
    local si, sn = span_of(-cost, p[1], p[2], den)
    ti, tn = span_sub(ti, tn, si, sn, den)
    if ti < now then ti, tn = now, 0 end
    return answer(1, -1, 0, 0), s and {ti, tn, p[7]}
  end
  local wait = math.max(span_ceil(ti, tn) - max_burst - now, 0)
  if cost == 0 then return answer(1, -1, wait, 0) end
  local si, sn = span_of(cost, p[1], p[2], den)
  if span_less(1125899906842624, 0, si, sn) then return answer(0, -1, 0, 1), cut end
  local accepted = math.max(patience(p[6], max_wait), 0)
  if wait > accepted then return answer(0, wait - accepted, 0, 0), cut end
  ti, tn = span_add(ti, tn, si, sn, den)
  return answer(1, -1, wait, 0), {ti, tn, p[7]}
end
