-- Consecutive windows, as in aligned.rs. A state is {start, used}.

-- Returns the start of the window around `now`.
local function aligned_start(now, period, phase)
  return now - (now - phase) % period
end

-- Returns the window to count in and the units used of it.
local function aligned_window(s, now, period, phase)
  if s and s[2] ~= 0 and s[1] + period > now then return s[1], s[2] end
  return aligned_start(now, period, phase), 0
end
