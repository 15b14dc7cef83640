-- The theoretical arrival time, as in tat.rs and meter.rs. A meter is {most, whole, part, den, depth micros, depth num,
-- maker, furthest micros, furthest num}. A state is {micros, num, maker}, or that and {whole, part, den, furthest micros,
-- furthest num} (all 0: unknown) and {until} of each of several limits, the one that wrote it
-- first. The lower 32 bits of a maker, less one, identify the limit. The maker 2^32 + 1 (HELD in tat.rs) stands for limits
-- that others cannot charge; its arrival time is at most 31 days ahead.

-- Returns the limit's arrival time in a state, and whether it was clamped.
local function tat_read(s, now, maker, fi, fn, den)
  local own, rest, limit = nil, nil, (maker - 1) % 4294967296
  for at = 1, #s, 9 do
    if (s[at + 2] - 1) % 4294967296 == limit then
      own = own or at
    else
      local ends = span_ceil(s[at], s[at + 1])
      if not rest or ends > rest then rest = ends end
    end
  end
  local ti, tn
  if own then
    ti, tn = s[own], s[own + 1]
    if s[own + 2] ~= maker or tn >= den then ti, tn = span_ceil(ti, tn), 0 end
    if not rest or s[own + 5] ~= 0 then return ti, tn, false end
  end
  local li, ln = now + fi, fn
  if span_less(rest, 0, li, ln) then li, ln = rest, 0 end
  if own and span_less(li, ln, ti, tn) then li, ln = ti, tn end
  return li, ln, span_less(li, ln, rest, 0)
end

-- Charges `units` of another limit to the arrival time at `at`, of which the terms are known.
local function tat_charged(own, at, units, now)
  local ti, tn, den = own[at], own[at + 1], own[at + 5]
  local si, sn = span_of(units, own[at + 3], own[at + 4], den)
  local ni, nn = ti, tn
  if ti < now then ni, nn = now, 0 end
  ni, nn = span_add(ni, nn, si, sn, den)
  local li, ln = now + own[at + 6], own[at + 7]
  if span_less(li, ln, ni, nn) then ni, nn = li, ln end
  if span_less(ti, tn, ni, nn) then own[at], own[at + 1] = ni, nn end
end

-- Adds the arrival times of other limits in `s` to `own`, the state of this limit alone, each with `charged` units more;
-- not a refund, since a limit that was full may have been charged less; and with `held`, if that is the furthest. Of more
-- than three, the one that is kept for the shortest time is dropped, except that of held units.
local function tat_write(s, own, charged, now, fi, fn, whole, part, den, held)
  local limit, length, furthest, before = (own[3] - 1) % 4294967296, 9, span_ceil(own[1], own[2]), nil
  for from = 1, #s, 9 do
    local kept = s[from + 8] or span_ceil(s[1], s[2]) + 3600000000
    if (s[from + 2] - 1) % 4294967296 ~= limit and kept > now then
      for place = 0, 7 do own[length + 1 + place] = s[from + place] or 0 end
      own[length + 9] = kept
      if charged > 0 and own[length + 6] ~= 0 then tat_charged(own, length + 1, charged, now) end
      furthest = math.max(furthest, span_ceil(own[length + 1], own[length + 2]))
      if own[length + 3] == 4294967297 then before = length + 1 end
      length = length + 9
    end
  end
  if held and held > furthest then
    if before then
      for _ = 1, 9 do table.remove(own, before) end
      length = length - 9
    end
    local numbers = {held, 0, 4294967297, whole, part, den, 2678400000000, 0, held + 3600000000}
    for place = 1, 9 do own[length + place] = numbers[place] end
    length = length + 9
  end
  if length == 9 then return own end
  own[4], own[5], own[6], own[7], own[8] = whole, part, den, fi, fn
  own[9] = math.max(span_ceil(own[1], own[2]), now + span_ceil(fi, fn)) + 3600000000
  while length > 36 do
    local nearest
    for from = 10, length, 9 do
      if own[from + 2] ~= 4294967297 and (not nearest or own[from + 8] < own[nearest + 8]) then nearest = from end
    end
    for _ = 1, 9 do table.remove(own, nearest) end
    length = length - 9
  end
  return own
end

-- Returns the arrival time after units that were held, for limits that cannot be charged; nil: with a factor. `ti, tn` is
-- the arrival time of the limit that settles them.
local function tat_held(s, ti, tn, units, now, maker, whole, part, den)
  if units == 0 or maker > 4294967296 then return nil end
  if ti < now then ti, tn = now, 0 end
  for from = 1, #s, 9 do
    local ends = span_ceil(s[from], s[from + 1])
    local is_other = (s[from + 2] - maker) % 4294967296 ~= 0
    if is_other and span_less(ti, tn, ends, 0) then ti, tn = ends, 0 end
  end
  local si, sn = span_of(min(units, 4294967296), whole, part, den)
  return min(span_ceil(span_add(ti, tn, si, sn, den)), now + 2678400000000)
end

-- Returns until when the arrival times of limits other than that of `maker` matter to them; nil: there are none.
local function tat_kept(s, maker)
  local last
  -- Most states are of one limit.
  for at = s[3] == maker and 10 or 1, #s, 9 do
    if (s[at + 2] - maker) % 4294967296 ~= 0 then
      local ends = span_ceil(s[at], s[at + 1])
      if s[at + 8] then ends = min(ends, s[at + 8] - 3600000000) end
      if not last or ends > last then last = ends end
    end
  end
  return last
end

-- Decides by a state that another limit has written, or a request with another factor, as one of this limit alone. A
-- refusal stores a clamped arrival time.
local function tat_step_beside(step, p, s, now, cost, max_wait, maker, fi, fn, whole, part, den)
  local ti, tn, cut = tat_read(s, now, maker, fi, fn, den)
  local own = {ti, tn, maker}
  local answer, next_state = step(p, own, now, cost, max_wait)
  if not next_state and cut and cost > 0 then next_state = own end
  if not next_state then return answer end
  return answer, tat_write(s, next_state, answer[1] == 1 and cost or 0, now, fi, fn, whole, part, den)
end

-- `ri, rn` is the time left before the furthest arrival time, `ti, tn` the arrival time.
local function tat_answer(p, allowed, retry, ri, rn, ti, tn, now)
  local remaining = span_units(ri, rn, p[2], p[3], p[4], p[1])
  if tn > 0 then ti = ti + 1 end
  return {allowed, p[1], remaining, retry, ti - now, 0, (allowed == 0 and retry < 0) and 1 or 0}
end

-- Returns the time left at the arrival time `ti, tn`.
local function tat_headroom(p, ti, tn, now)
  local ri, rn = span_sub(p[5], p[6], ti, tn, p[4])
  return ri + now, rn
end

local function tat_refund(p, s, ti, tn, now, units)
  local den = p[4]
  local si, sn = span_of(units, p[2], p[3], den)
  local bi, bn = span_sub(ti, tn, si, sn, den)
  if bi < now then bi, bn = now, 0 end
  local ri, rn = tat_headroom(p, bi, bn, now)
  return tat_answer(p, 1, -1, ri, rn, bi, bn, now), s and {bi, bn, p[7]}
end

local function tat_step(p, s, now, cost)
  local den, ti, tn = p[4], now, 0
  if s then
    ti, tn = s[1], s[2]
    if s[3] ~= p[7] or tn >= den or s[4] then
      return tat_step_beside(tat_step, p, s, now, cost, nil, p[7], p[8], p[9], p[2], p[3], den)
    end
  end
  if cost < 0 then return tat_refund(p, s, ti, tn, now, -cost) end
  if ti < now then ti, tn = now, 0 end
  local most, whole, part = p[1], p[2], p[3]
  if cost > most then
    local ri, rn = tat_headroom(p, ti, tn, now)
    return tat_answer(p, 0, -1, ri, rn, ti, tn, now)
  end
  -- The common path is inlined, including span_add, tat_headroom and tat_answer: a call takes longer than their work.
  local si, sn = cost * whole, 0
  if part > 0 then si, sn = span_of(cost, whole, part, den) end
  local ni, nn = ti + si, tn + sn
  if nn >= den then ni, nn = ni + 1, nn - den end
  local ri, rn = p[5] - ni + now, p[6] - nn
  if rn < 0 then ri, rn = ri - 1, rn + den end
  if ri < 0 then
    local retry = -ri
    ri, rn = span_add(ri, rn, si, sn, den)
    return tat_answer(p, 0, retry, ri, rn, ti, tn, now)
  end
  local remaining
  if part > 0 then
    remaining = span_units(ri, rn, whole, part, den, most)
  else
    remaining = floor(ri / whole)
    if remaining > most then remaining = most end
  end
  local reset = ni - now
  if nn > 0 then reset = reset + 1 end
  return {1, most, remaining, -1, reset, 0, 0}, cost > 0 and {ni, nn, p[7]} or nil
end

-- Returns the state with `units` charged now, whether they fit or not; `held` of them were held.
local function tat_charge(p, s, now, units, held)
  local den, maker, ti, tn = p[4], p[7], now, 0
  local beside = s and (s[3] ~= maker or s[2] >= den or s[4])
  if s then
    ti, tn = s[1], s[2]
    if beside then ti, tn = tat_read(s, now, maker, p[8], p[9], den) end
    if ti < now then ti, tn = now, 0 end
  end
  local si, sn = span_of(min(units, p[1]), p[2], p[3], den)
  local ni, nn = span_add(ti, tn, si, sn, den)
  local fi, fn = span_add(p[5], p[6], p[5], p[6], den)
  if span_less(fi + now, fn, ni, nn) then ni, nn = fi + now, fn end
  if span_less(ni, nn, ti, tn) then ni, nn = ti, tn end
  local own, before = {ni, nn, maker}, beside and s or {}
  local kept = tat_held(before, ti, tn, held, now, maker, p[2], p[3], den)
  if not beside and (not kept or kept <= span_ceil(ni, nn)) then return own end
  return tat_write(before, own, min(units, 4294967296), now, p[8], p[9], p[2], p[3], den, kept)
end
