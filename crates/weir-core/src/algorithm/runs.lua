-- Units by the time at which they were spent, as in runs.rs: {oldest mark, steps.., newest mark, units}. A step above
-- 0 leads to the next mark; one below 0 is the number of units beyond one at the mark before it. {0, 0} for none.
-- `size` is the number of entries before the last two.

-- The run whose mark is a step at `at` from `mark`: returns the start of the next one, its mark, and its units less
-- one.
local function runs_next(s, size, at, mark)
  mark = mark + s[at]
  if at < size and s[at + 1] < 0 then return at + 2, mark, -s[at + 1] end
  return at + 1, mark, 0
end

-- The arguments are the results for such a run, the first in view. Returns the run that holds the nth unit, as if
-- those before it were gone.
local function runs_find(s, size, after, mark, more, nth)
  while nth > more + 1 do
    nth = nth - more - 1
    after, mark, more = runs_next(s, size, after, mark)
  end
  return after, mark, more + 1 - nth
end

-- Returns the `units` in view and as many `added` at the mark `at`.
local function runs_with(s, size, after, mark, more, newest, units, at, added)
  local numbers, length = {at}, 1
  if units > 0 then
    -- Faster than copying one by one, as far as the stack allows.
    local last = size < after + 4000 and size or after + 4000
    numbers = more > 0 and {mark, -more, unpack(s, after, last)} or {mark, unpack(s, after, last)}
    length = (more > 0 and 2 or 1) + last - after + 1
    for index = last + 1, size do
      length = length + 1
      numbers[length] = s[index]
    end
    if at == newest then
      if length > 1 and numbers[length] < 0 then
        added, length = added - numbers[length], length - 1
      end
      added = added + 1
    else
      length = length + 1
      numbers[length] = at - newest
    end
  end
  if added > 1 then
    length = length + 1
    numbers[length] = 1 - added
  end
  return numbers, length
end

-- Returns the runs without this many of the units spent at a mark, although others were spent since.
local function runs_without(s, mark, taken)
  local size, after, at, more = #s - 2, 1, 0, 0
  local numbers, length, newest, units = {}, 0, 0, 0
  while after <= size do
    after, at, more = runs_next(s, size, after, at)
    local left = more + 1
    if at == mark then left = math.max(left - taken, 0) end
    if left > 0 then
      length = length + 1
      numbers[length] = at - newest
      if left > 1 then
        length = length + 1
        numbers[length] = 1 - left
      end
      newest, units = at, units + left
    end
  end
  numbers[length + 1], numbers[length + 2] = newest, units
  return numbers
end

-- Returns the runs without this many of the newest units.
local function runs_cut(s, taken)
  local size = #s - 2
  local newest, units = s[size + 1], s[size + 2] - taken
  if units <= 0 then return {0, 0} end
  local numbers = {}
  for index = 1, size do numbers[index] = s[index] end
  while taken > 0 do
    local more = 0
    if size > 1 and numbers[size] < 0 then more = -numbers[size] end
    if more > taken then
      numbers[size], taken = taken - more, 0
    elseif more > 0 then
      numbers[size], size, taken = nil, size - 1, taken - more
    else
      newest = newest - numbers[size]
      numbers[size], size, taken = nil, size - 1, taken - 1
    end
  end
  numbers[size + 1], numbers[size + 2] = newest, units
  return numbers
end
