-- Returns the time at which the store is full, not before now, and the time until the key is as if never used. `p[10]` is
-- how long a state is valid after the store is full; above 0 if a key starts empty.
local function smooth_bursty_at(p, s, now)
  if s then
    local ti, tn = s[1], s[2]
    if s[3] ~= p[7] or tn >= p[3] or s[4] then ti, tn = tat_read(s, now, p[7], p[8], p[9], p[3]) end
    local reset = span_ceil(ti, tn) + p[10] - now
    if reset > 0 then
      if ti < now then return now, 0, reset end
      return ti, tn, reset
    end
  end
  return p[10] > 0 and now + p[4] or now, 0, 0
end

local function smooth_bursty(p, s, now, cost, max_wait, phase)
  local den, max_burst, limit, kept = p[3], p[4], p[5], p[10]
  if s and (s[3] ~= p[7] or s[2] >= den or s[4]) then
    return tat_step_beside(smooth_bursty, p, s, now, cost, max_wait, p[7], p[8], p[9], p[1], p[2], den)
  end
  local ti, tn, reset = smooth_bursty_at(p, s, now)
  local function answer(allowed, retry, wait, never)
    local ri, rn = span_sub(now + max_burst, 0, ti, tn, den)
    local remaining = span_units(ri, rn, p[1], p[2], den, limit)
    return {allowed, limit, remaining, retry, reset, wait, never}
  end
  local function write(i, n, wait)
    ti, tn, reset = i, n, span_ceil(i, n) + kept - now
    return answer(1, -1, wait, 0), {ti, tn, p[7]}
  end
  if cost < 0 then
    if reset == 0 then return answer(1, -1, 0, 0), s and {now - kept, 0, p[7]} end
    local si, sn = span_of(-cost, p[1], p[2], den)
    si, sn = span_sub(ti, tn, si, sn, den)
    if si < now then si, sn = now, 0 end
    return write(si, sn, 0)
  end
  local wait = math.max(span_ceil(ti, tn) - max_burst - now, 0)
  if cost == 0 then return answer(1, -1, wait, 0) end
  local si, sn = span_of(cost, p[1], p[2], den)
  if span_less(1125899906842624, 0, si, sn) then return answer(0, -1, 0, 1) end
  local accepted = math.max(accepted_wait(p[6], max_wait), 0)
  if wait > accepted then return answer(0, wait - accepted, 0, 0) end
  si, sn = span_add(ti, tn, si, sn, den)
  return write(si, sn, wait)
end

local function smooth_bursty_next(p, s, now, max_wait, phase)
  local ti, tn, reset = smooth_bursty_at(p, s, now)
  if span_less(p[4], 0, p[1], p[2]) or (p[10] > 0 and reset == 0) then return -1 end
  ti, tn = span_add(ti, tn, p[1], p[2], p[3])
  return span_ceil(ti, tn) - p[4] - now
end

local function smooth_bursty_kept(s, p)
  return tat_kept(s, p[7])
end
