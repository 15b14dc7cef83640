-- What is left of `amount` after so many slots.
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

-- How long after `now` at most `most` is left of what stood at `amount` in a slot: a guess, then put right.
local function decay_until(p, slot, amount, most, now)
  local decay = p[3]
  if most < 1e-9 then most = 1e-9 end
  local slots = math.max(math.ceil(math.log(amount / most) / p[4]), 0)
  while decay_left(amount, decay, slots) > most do slots = slots + 1 end
  while slots > 0 and decay_left(amount, decay, slots - 1) <= most do slots = slots - 1 end
  return (slot + slots) * p[2] - now
end

local function decay(p, s, now, cost, max_wait, phase)
  local max, resolution = p[1], p[2]
  local slot, amount = floor(now / resolution), 0
  local known_slot, known_amount
  if s and s[2] > 0 then
    known_slot, known_amount = floor(s[1] / resolution), s[2]
    local latest = math.max(slot, known_slot)
    amount = decay_left(known_amount, p[3], latest - known_slot)
    if amount > 0 then slot = latest end
  end
  local room, allowed, retry, never, changed = max - cost, 1, -1, 0, s
  if cost < 0 then
    amount = amount + cost
    if amount <= 1e-9 then amount = 0 end
  elseif amount > room then
    allowed, changed = 0, nil
    if room < 0 then never = 1 else retry = decay_until(p, known_slot, known_amount, room, now) end
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
