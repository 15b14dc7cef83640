-- The theoretical arrival time, as tat.rs. A meter is {most, whole, part, den, depth micros, depth num}, a state
-- {micros, num, den}.

local function tat_answer(p, allowed, retry, ti, tn, now)
  local ri, rn = span_add(p[5], p[6], now, 0, p[4])
  ri, rn = span_sub(ri, rn, ti, tn, p[4])
  local remaining = span_units(ri, rn, p[2], p[3], p[4], p[1])
  local never = (not allowed and retry < 0) and 1 or 0
  return {allowed and 1 or 0, p[1], remaining, retry, span_ceil(ti - now, tn), 0, never}
end

local function tat_step(p, s, now, cost)
  local den = p[4]
  local ti, tn = now, 0
  if s then
    ti, tn = s[1], s[2]
    if s[3] ~= den then ti, tn = span_ceil(ti, tn), 0 end
  end
  local bi, bn = ti, tn
  if bi < now then bi, bn = now, 0 end
  if cost < 0 then
    local si, sn = span_of(-cost, p[2], p[3], den)
    local ri, rn = span_sub(ti, tn, si, sn, den)
    if ri < now then ri, rn = now, 0 end
    return tat_answer(p, true, -1, ri, rn, now), s and {ri, rn, den}
  end
  if cost > p[1] then return tat_answer(p, false, -1, bi, bn, now) end
  local ni, nn = span_of(cost, p[2], p[3], den)
  ni, nn = span_add(bi, bn, ni, nn, den)
  local ei, en = span_sub(ni, nn, p[5], p[6], den)
  ei = ei - now
  if ei > 0 or (ei == 0 and en > 0) then
    return tat_answer(p, false, span_ceil(ei, en), bi, bn, now)
  end
  if cost == 0 then return tat_answer(p, true, -1, ni, nn, now) end
  return tat_answer(p, true, -1, ni, nn, now), {ni, nn, den}
end
