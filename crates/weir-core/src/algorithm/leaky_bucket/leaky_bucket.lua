-- The answer for a bucket that holds `counter` and last ticked at `at`; `over` units must leave before the request
-- passes.
local function leaky_bucket_answer(p, at, counter, now, over, never)
  local size, drip_size, drip_rate = p[1], p[2], p[3]
  local allowed, retry, reset = 1, -1, 0
  if over > 0 then
    allowed = 0
    if never == 0 then retry = math.ceil(over / drip_size) * drip_rate - (now - at) end
  end
  if counter > 0 then reset = math.ceil(counter / drip_size) * drip_rate - (now - at) end
  return {allowed, size, math.max(size - counter, 0), retry, reset, 0, never}
end

-- Returns the time of the bucket's last tick, and its units.
local function leaky_bucket_ticked(p, s, now)
  if s then
    local held = math.min(s[2], p[4])
    local ticks = floor(math.max(now - s[1], 0) / p[3])
    local dripped = ticks * p[2]
    if dripped < held then return s[1] + ticks * p[3], held - dripped end
  end
  return now, 0
end

local function leaky_bucket(p, s, now, cost, max_wait, phase)
  local at, counter = leaky_bucket_ticked(p, s, now)
  if cost < 0 then
    counter = math.max(counter + cost, 0)
    return leaky_bucket_answer(p, at, counter, now, 0, 0), s and {at, counter}
  end
  local over = counter + cost - p[1]
  if over > 0 then return leaky_bucket_answer(p, at, counter, now, over, cost > p[1] and 1 or 0) end
  counter = counter + cost
  return leaky_bucket_answer(p, at, counter, now, 0, 0), cost > 0 and {at, counter} or nil
end

local function leaky_bucket_charge(p, s, now, units, phase, held)
  local at, counter = leaky_bucket_ticked(p, s, now)
  counter = math.min(counter + units, p[4])
  local all, dripped, known = 0, p[4] - counter, 0
  if held > 0 then
    if s then known = math.max(s[2] - floor(math.max(now - s[1], 0) / p[3]) * p[2], 0) end
    all = math.min(known + held, p[5])
  end
  if all <= counter or dripped % p[2] > 0 then return {at, counter} end
  -- `all` for a larger limit, which is `counter` for this one: as the bucket was when it was clamped to p[4].
  return {at - dripped / p[2] * p[3], math.min(all + dripped, p[5])}
end

local function leaky_bucket_kept(s, p)
  local is_clamped = s[2] > p[4]
  if not is_clamped and p[7] == 0 then return end
  local drips = math.ceil(math.min(s[2], p[6]) / p[2]) * p[7]
  -- At most 31 days, as in mod.rs.
  if is_clamped then drips = math.max(drips, math.min(math.ceil(s[2] / p[2]) * p[3], 2678400000000)) end
  return s[1] + drips
end
