-- The longest wait that both the limit and the client accept, of those that set one (-1: unset); -1: neither does.
local function accepted_wait(limit, caller)
  if limit < 0 then return caller end
  if caller < 0 then return limit end
  return math.min(limit, caller)
end
