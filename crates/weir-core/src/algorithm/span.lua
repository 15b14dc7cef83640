-- Exact time, as in span.rs: a rate is (whole, part, den), a span is (micros, num), all integers below 2^53 in
-- doubles.


-- Returns the time that n units take. n * part may exceed 2^53, so it is divided in two steps of 16 bits.
local function span_of(n, whole, part, den)
  if part == 0 then return n * whole, 0 end
  local high = floor(n / 65536)
  local low = n - high * 65536
  local parts = high * part
  local carry = floor(parts / den)
  parts = (parts - carry * den) * 65536 + low * part
  local rest = floor(parts / den)
  return n * whole + carry * 65536 + rest, parts - rest * den
end

local function span_add(ai, an, bi, bn, den)
  local n = an + bn
  if n >= den then return ai + bi + 1, n - den end
  return ai + bi, n
end

local function span_sub(ai, an, bi, bn, den)
  local n = an - bn
  if n < 0 then return ai - bi - 1, n + den end
  return ai - bi, n
end

local function span_less(ai, an, bi, bn)
  return ai < bi or (ai == bi and an < bn)
end

local function span_ceil(i, n)
  if n > 0 then return i + 1 end
  return i
end

-- Returns the most units that fit into a time span, at most `most`.
local function span_units(ri, rn, whole, part, den, most)
  if ri < 0 then return 0 end
  if part == 0 then return min(floor(ri / whole), most) end
  local units = min(floor((ri * den + rn) / (whole * den + part)), most)
  while units > 0 do
    local i, n = span_of(units, whole, part, den)
    if not span_less(ri, rn, i, n) then break end
    units = units - 1
  end
  while units < most do
    local i, n = span_of(units + 1, whole, part, den)
    if span_less(ri, rn, i, n) then break end
    units = units + 1
  end
  return units
end
