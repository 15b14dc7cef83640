-- The longest wait that both the limit and its caller accept, of those who say (-1: does not); -1: neither does.
local function patience(limit, caller)
  if limit < 0 then return caller end
  if caller < 0 then return limit end
  return math.min(limit, caller)
end
