-- The theoretical arrival time, as in tat.rs and meter.rs. A meter is {most, whole, part, den, depth micros, depth num,
-- maker, furthest micros, furthest num}. A state is {micros, num, maker} of the limit that wrote it, followed by
-- {micros, num, maker, units} for each of the others. The lower 32 bits of a maker, less one, are those of the limit.

-- Returns the limit's arrival time in a state, or the furthest of others, and whether it was clamped.
local function tat_read(s, now, maker, fi, fn, whole, part, den)
  local own, units, limit, most = nil, 0, (maker - 1) % 4294967296, 1
  if (s[3] - 1) % 4294967296 == limit then own = 1 end
  for at = 4, #s, 4 do
    if not own and (s[at + 2] - 1) % 4294967296 == limit then own, units = at, s[at + 3] end
    if span_ceil(s[at], s[at + 1]) > span_ceil(s[most], s[most + 1]) then most = at end
  end
  local at = own or most
  local ti, tn, li, ln = s[at], s[at + 1], now + fi, fn
  if s[at + 2] ~= maker or tn >= den then ti, tn = span_ceil(ti, tn), 0 end
  if own and span_less(li, ln, ti, tn) then li, ln = ti, tn end
  local si, sn = span_of(units, whole, part, den)
  ti, tn = span_add(ti, tn, si, sn, den)
  if span_less(li, ln, ti, tn) then return li, ln, true end
  return ti, tn, false
end

-- Adds the arrival times of other limits in `s` to `own`, the state of this limit alone, with `charged` units more. Of
-- more than three, the nearest is dropped.
local function tat_write(s, own, charged, now)
  local limit, length, nearest = (own[3] - 1) % 4294967296, 3
  for at = 0, #s, 4 do
    -- The first has no units.
    local from = at == 0 and 1 or at
    local micros, num, maker = s[from], s[from + 1], s[from + 2]
    if (maker - 1) % 4294967296 ~= limit and span_ceil(micros, num) > now - 3600000000 then
      local units = math.max((at > 0 and s[at + 3] or 0) + charged, 0)
      own[length + 1], own[length + 2], own[length + 3], own[length + 4] = micros, num, maker, min(units, 4294967296)
      if not nearest or span_ceil(micros, num) < span_ceil(own[nearest], own[nearest + 1]) then nearest = length + 1 end
      length = length + 4
    end
  end
  if length > 15 then
    for _ = 1, 4 do table.remove(own, nearest) end
  end
  return own
end

-- Returns until when a state matters to limits other than the one that wrote it; nil: not.
local function tat_kept(s)
  local last
  for at = 4, #s, 4 do
    local ends = span_ceil(s[at], s[at + 1])
    if not last or ends > last then last = ends end
  end
  return last
end

-- Decides by a state that another limit has written, or a request with another factor, as one of this limit alone. A
-- refusal stores a clamped arrival time.
local function tat_step_beside(step, p, s, now, cost, max_wait, maker, fi, fn, whole, part, den)
  local ti, tn, cut = tat_read(s, now, maker, fi, fn, whole, part, den)
  local own = {ti, tn, maker}
  local answer, next_state = step(p, own, now, cost, max_wait)
  if not next_state and cut and cost > 0 then next_state = own end
  return answer, next_state and tat_write(s, next_state, answer[1] == 1 and cost or 0, now)
end

-- `ri, rn` is the room that is left, `ti, tn` the arrival time.
local function tat_answer(p, allowed, retry, ri, rn, ti, tn, now)
  local remaining = span_units(ri, rn, p[2], p[3], p[4], p[1])
  if tn > 0 then ti = ti + 1 end
  return {allowed, p[1], remaining, retry, ti - now, 0, (allowed == 0 and retry < 0) and 1 or 0}
end

-- Returns the room at the arrival time `ti, tn`.
local function tat_room(p, ti, tn, now)
  local ri, rn = span_sub(p[5], p[6], ti, tn, p[4])
  return ri + now, rn
end

local function tat_refund(p, s, ti, tn, now, units)
  local den = p[4]
  local si, sn = span_of(units, p[2], p[3], den)
  local bi, bn = span_sub(ti, tn, si, sn, den)
  if bi < now then bi, bn = now, 0 end
  local ri, rn = tat_room(p, bi, bn, now)
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
    local ri, rn = tat_room(p, ti, tn, now)
    return tat_answer(p, 0, -1, ri, rn, ti, tn, now)
  end
  -- The common path is inlined, including span_add, tat_room and tat_answer: a call takes longer than their work.
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

-- Returns the state with `units` charged now, whether they fit or not.
local function tat_charge(p, s, now, units)
  local den, maker, ti, tn = p[4], p[7], now, 0
  local beside = s and (s[3] ~= maker or s[2] >= den or s[4])
  if s then
    ti, tn = s[1], s[2]
    if beside then ti, tn = tat_read(s, now, maker, p[8], p[9], p[2], p[3], den) end
    if ti < now then ti, tn = now, 0 end
  end
  local si, sn = span_of(min(units, p[1]), p[2], p[3], den)
  local ni, nn = span_add(ti, tn, si, sn, den)
  local fi, fn = span_add(p[5], p[6], p[5], p[6], den)
  if span_less(fi + now, fn, ni, nn) then ni, nn = fi + now, fn end
  if span_less(ni, nn, ti, tn) then ni, nn = ti, tn end
  local own = {ni, nn, maker}
  return beside and tat_write(s, own, units, now) or own
end
