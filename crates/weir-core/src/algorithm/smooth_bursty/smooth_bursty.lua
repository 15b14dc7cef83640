-- Where a state stands, not before now, and whether that is less than it says.
local function smooth_bursty_at(p, s, now)
  if not s then return now, 0 end
  local ti, tn, cut = s[1], s[2], nil
  if s[3] ~= p[7] or tn >= p[3] then ti, tn, cut = tat_foreign(s, p[7], p[8], p[9], now) end
  if ti < now then return now, 0, cut end
  return ti, tn, cut
end

local function smooth_bursty(p, s, now, cost, max_wait, phase)
  local den, max_burst, limit = p[3], p[4], p[5]
  local ti, tn, cut = smooth_bursty_at(p, s, now)
  cut = cut and {ti, tn, p[7]} or nil
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

local function smooth_bursty_next(p, s, now, max_wait, phase)
  if span_less(p[4], 0, p[1], p[2]) then return -1 end
  local ti, tn = smooth_bursty_at(p, s, now)
  ti, tn = span_add(ti, tn, p[1], p[2], p[3])
  return span_ceil(ti, tn) - p[4] - now
end
