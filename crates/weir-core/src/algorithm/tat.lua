-- The theoretical arrival time, as in tat.rs. A meter is {most, whole, part, den, depth micros, depth num, maker,
-- furthest micros, furthest num}, a state {micros, num, maker}.

-- Returns the arrival time of a state, which another limit may have made, or the same one under another factor, and
-- whether it was clamped; `fi, fn` is how far ahead of the clock it counts. The lower 32 bits of a maker, less one, are
-- those of the limit.
local function tat_foreign(s, maker, fi, fn, now)
  local ti, li = span_ceil(s[1], s[2]), now + fi
  if (s[3] - 1) % 4294967296 ~= (maker - 1) % 4294967296 and span_less(li, fn, ti, 0) then return li, fn, true end
  return ti, 0, false
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
  local den, ti, tn, cut = p[4], now, 0, nil
  if s then
    ti, tn = s[1], s[2]
    if s[3] ~= p[7] or tn >= den then
      ti, tn, cut = tat_foreign(s, p[7], p[8], p[9], now)
      cut = cut and cost > 0 and {ti, tn, p[7]} or nil
    end
  end
  if cost < 0 then return tat_refund(p, s, ti, tn, now, -cost) end
  if ti < now then ti, tn = now, 0 end
  local most, whole, part = p[1], p[2], p[3]
  if cost > most then
    local ri, rn = tat_room(p, ti, tn, now)
    return tat_answer(p, 0, -1, ri, rn, ti, tn, now), cut
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
    return tat_answer(p, 0, retry, ri, rn, ti, tn, now), cut
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
  local den, ti, tn = p[4], now, 0
  if s then
    ti, tn = s[1], s[2]
    if s[3] ~= p[7] or tn >= den then ti, tn = tat_foreign(s, p[7], p[8], p[9], now) end
    if ti < now then ti, tn = now, 0 end
  end
  local si, sn = span_of(min(units, p[1]), p[2], p[3], den)
  local ni, nn = span_add(ti, tn, si, sn, den)
  local fi, fn = span_add(p[5], p[6], p[5], p[6], den)
  if span_less(fi + now, fn, ni, nn) then ni, nn = fi + now, fn end
  if span_less(ni, nn, ti, tn) then ni, nn = ti, tn end
  return {ni, nn, p[7]}
end
