-- Every number is computed in the same order as in curve.rs and pace.rs, so that it is the same to the last bit. A
-- limit is {stable, threshold, slope, max, cool, most, max_wait}, a state {micros and part of the next start, units
-- missing}.

-- Returns the time that the units take, and the units missing from the store afterwards.
local function warming_up_spend(p, units, spent)
  local stable, slope, max = p[1], p[3], p[4]
  local above = max - spent - p[2]
  local dear, price = 0, 0
  if above > 0 then
    dear = units < above and units or above
    local first, last = stable + above * slope, stable + (above - dear) * slope
    price = dear * (first + last) / 2
  end
  price = price + (units - dear) * stable
  spent = spent + units
  return price, spent < max and spent or max
end

-- Returns the next start and the missing units after units are refunded.
local function warming_up_give_back(p, whole, part, spent, units, now)
  local stable = p[1]
  local owed, paid = (whole - now) + part, units * stable
  if paid >= owed then
    local rest = units - owed / stable
    if rest > 0 then spent = spent - rest end
    return now, 0, spent > 0 and spent or 0
  end
  local micros = math.floor(paid)
  whole, part = whole - micros, part - (paid - micros)
  if part < 0 then whole, part = whole - 1, part + 1 end
  if part >= 1 then whole, part = whole + 1, 0 end
  if whole < now then whole, part = now, 0 end
  return whole, part, spent
end

-- Returns the next start and the missing units at `now`, and the time until the key is forgotten.
local function warming_up_at(p, s, now)
  local max, cool = p[4], p[5]
  local missing = s and (s[3] < max and s[3] or max)
  local forgotten = s and s[1] + math.ceil(s[2] + missing * cool) or now
  if now >= forgotten then return now, 0, 0, 0 end
  if now <= s[1] then return s[1], s[2], missing, forgotten - now end
  local spent = missing - (now - s[1] - s[2]) / cool
  return now, 0, spent > 0 and spent or 0, forgotten - now
end

-- Returns the whole units in the store, or 0 before the next start.
local function warming_up_left(p, whole, part, spent, now)
  local starts = part > 1e-6 and whole + 1 or whole
  return starts <= now and math.floor(p[4] - spent) or 0
end

local function warming_up(p, s, now, cost, max_wait, phase)
  local max, cool, never = p[4], p[5], cost > p[6]
  local whole, part, spent, reset = warming_up_at(p, s, now)
  local starts = part > 1e-6 and whole + 1 or whole
  local wait, longest = math.max(starts - now, 0), math.max(accepted_wait(p[7], max_wait), 0)
  local allowed, retry, changes = not never and (cost <= 0 or wait <= longest), -1, false
  if not allowed then
    if not never then retry = wait - longest end
    wait = 0
  elseif cost < 0 then
    whole, part, spent = warming_up_give_back(p, whole, part, spent, -cost, now)
    wait, changes = 0, true
  elseif cost > 0 then
    local price
    price, spent = warming_up_spend(p, cost, spent)
    local micros = math.floor(price)
    whole, part = whole + micros, part + (price - micros)
    if part >= 1 then whole, part = whole + 1, part - 1 end
    changes = true
  end
  if changes then
    reset = whole + math.ceil(part + spent * cool) - now
  end
  local remaining = warming_up_left(p, whole, part, spent, now)
  local decision = {allowed and 1 or 0, math.max(math.floor(max), 1), remaining, retry, reset, wait, never and 1 or 0}
  return decision, changes and (s or cost > 0) and {whole, part, spent} or nil
end

-- A guess, then corrected.
local function warming_up_next(p, s, now, max_wait, phase)
  local max = p[4]
  if not s or max < 1 then return -1 end
  local function is_left(at)
    local whole, part, spent = warming_up_at(p, s, at)
    return warming_up_left(p, whole, part, spent, at) > 0
  end
  local missing = (s[3] < max and s[3] or max) - (max - 1)
  local at = math.max(s[1] + math.ceil(s[2] + math.max(missing, 0) * p[5]), now + 1)
  while not is_left(at) do at = at + 1 end
  while at > now + 1 and is_left(at - 1) do at = at - 1 end
  return at - now
end
