-- Returns what is left of `amount` after `slots` slots.
local function decay_left(amount, decay, slots)
  local power, square = 1, decay
  while slots > 0 do
    local half = floor(slots / 2)
    if slots > half * 2 then power = power * square end
    square = square * square
    slots = half
  end
  local left = amount / power
  if left <= 1e-9 then return 0 end
  return left
end

-- Returns the time from `now` until at most `most` is left of `amount` in `slot`: a guess, then corrected.
local function decay_until(p, slot, amount, most, now)
  local decay = p[3]
  if most < 1e-9 then most = 1e-9 end
  local slots = math.max(math.ceil(math.log(amount / most) / p[5]), 0)
  while decay_left(amount, decay, slots) > most do slots = slots + 1 end
  while slots > 0 and decay_left(amount, decay, slots - 1) <= most do slots = slots - 1 end
  return (slot + slots) * p[2] - now
end

-- Returns the current slot and the amount in it, and the slot and amount from which it has decayed.
local function decay_at(p, s, now)
  local slot = floor(now / p[2])
  if not (s and s[2] > 0) then return slot, 0 end
  local known_slot, known_amount = floor(s[1] / p[2]), math.min(s[2], p[6])
  local latest = math.max(slot, known_slot)
  local amount = decay_left(known_amount, p[3], latest - known_slot)
  return amount > 0 and latest or slot, amount, known_slot, known_amount
end

local function decay(p, s, now, cost, max_wait, phase)
  local max, resolution = p[1], p[2]
  local slot, amount, known_slot, known_amount = decay_at(p, s, now)
  local headroom, allowed, retry, never, changed = max - cost, 1, -1, 0, s
  if cost < 0 then
    amount = amount + cost
    if amount <= 1e-9 then amount = 0 end
  elseif amount > headroom then
    allowed, changed = 0, p[4] == 1 and cost > 0 or nil
    if changed then
      amount = math.min(amount + cost, p[6])
      known_slot, known_amount = slot, amount
    end
    if headroom < 0 then never = 1 else retry = decay_until(p, known_slot, known_amount, headroom, now) end
  elseif cost > 0 then
    amount, changed = amount + cost, true
  else
    changed = nil
  end
  if changed then known_slot, known_amount = slot, amount end
  local remaining, reset = floor(math.max(max - amount, 0)), 0
  if remaining > 0 and amount > max - remaining then remaining = remaining - 1 end
  if amount > 0 then reset = decay_until(p, known_slot, known_amount, 1e-9, now) end
  return {allowed, floor(max), remaining, retry, reset, 0, never}, changed and {slot * resolution, amount}
end

local function decay_charge(p, s, now, units, phase, held)
  local slot, amount = decay_at(p, s, now)
  amount = math.min(amount + units, p[6])
  -- Of a counter below it, one number cannot say both what counts under this limit and under a higher one.
  if held > 0 and amount >= p[6] then
    local known = s and decay_left(s[2], p[3], math.max(slot - floor(s[1] / p[2]), 0)) or 0
    amount = math.max(amount, math.min(known + held, 4294967296))
  end
  return {slot * p[2], amount}
end

local function decay_kept(s, p)
  if s[2] > p[6] then return decay_until(p, floor(s[1] / p[2]), s[2], 1e-9, 0) end
end

-- Returns the time until one unit passes, without a charge for refusals, which would come first.
local function decay_next(p, s, now, max_wait, phase)
  local _, amount, known_slot, known_amount = decay_at(p, s, now)
  local headroom = p[1] - 1
  if headroom < 0 or amount <= headroom then return -1 end
  return decay_until(p, known_slot, known_amount, headroom, now)
end
