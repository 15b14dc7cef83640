-- What a call does: decides plans, or forgets, or tries out.

if task == 0 then return pack(decide_all()) end

-- Forgets the fields of a hash that belong to the key named by `rest`, and with `subtree` to those below it, a page at a
-- time: where the next page begins ('0': nowhere), whether the key itself had a state that had not expired, and whether any
-- of these fields had. What is held of a state stays until its deadline: who holds it goes on spending. Holds past it are dropped.
local function reset()
  local hash, rest, subtree, cursor = KEYS[1], input[4], input[5] == 1, input[6]
  local read, page = pcall(call, 'HSCAN', hash, cursor, 'COUNT', 1000)
  if not read then
    local failure = type(page) == 'table' and page.err or tostring(page)
    if not string.find(failure, 'WRONGTYPE', 1, true) then error(failure) end
    -- Weir stores hashes alone: a key of another type is removed.
    call('UNLINK', hash)
    return {'0', 1, 1}
  end
  local existed, removed, gone, kept = 0, 0, {}, {}
  for index = 1, #page[2], 2 do
    local field = page[2][index]
    if string.sub(field, 1, #rest) == rest then
      local own = string.byte(field, #rest + 1) == 255
      if (own or subtree) and field ~= HELD and string.byte(field) ~= string.byte(RECORDS) then
        local read, expires, words, ledger = pcall(unpacked, page[2][index + 1])
        local live, counts = {}, not (read and type(expires) == 'number' and (expires <= now or not words))
        if read and type(ledger) == 'table' then
          load_holds()
          local whole, unexpired, burnt = pcall(holds.forget_expired, ledger, now)
          if whole then live, counts = unexpired, counts or (burnt and expires > now) end
        end
        if counts then
          removed = 1
          if own then existed = 1 end
        end
        if #live > 0 then
          kept[#kept + 1], kept[#kept + 2] = field, pack(expires, false, live)
        else
          gone[#gone + 1] = field
        end
      end
    end
  end
  local held = call('HMGET', hash, HELD, RECORDS)
  if rest == '' and subtree and not held[1] and not held[2] and (existed == 1 or page[1] == '0') then
    -- The answer is known, so the whole hash goes at once.
    call('UNLINK', hash)
    return {'0', existed, removed}
  end
  for first = 1, #kept, 1000 do
    call('HSET', hash, unpack(kept, first, math.min(first + 999, #kept)))
  end
  for first = 1, #gone, 1000 do
    call('HDEL', hash, unpack(gone, first, math.min(first + 999, #gone)))
  end
  return {page[1], existed, removed}
end

-- What is held of each of these states: how many holds, and of each its id, its units, and the time that is left.
local function holds()
  local values, found, length = call('HMGET', KEYS[1], unpack(input, at)), {}, 0
  for index = 1, #input - at + 1 do
    local head, value = length + 1, values[index]
    length, found[head] = head, 0
    for _, hold in ipairs(value and select(3, unpacked(value)) or {}) do
      if hold[4] > 0 and hold[6] > now then
        found[length + 1], found[length + 2], found[length + 3] = hold[1], hold[4], hold[6] - now
        length, found[head] = length + 3, found[head] + 1
      end
    end
  end
  return found
end

-- Shows that this server takes writes, and that its user may do all that a check needs.
local function probe()
  local hash = KEYS[1]
  call('HMGET', hash, 'probe')
  call('PTTL', hash)
  -- Before all other writes: a server without memory refuses it only where the script has not written yet.
  call('HSET', hash, 'probe', now)
  call('HDEL', hash, 'probe')
  call('PEXPIRE', hash, 1000)
  call('HRANDFIELD', hash, 1, 'WITHVALUES')
  return {now}
end

-- Changes a document, a field of a hash, and logs that in a stream: the change's place, that of the change before it, and the
-- document before it; where nothing was as expected or there is no room, that in place of the first.
local function change_document()
  local hash, log, name, document, expected, actor = KEYS[1], input[4], input[5], input[6], input[7], input[8]
  local before = call('HGET', hash, name) or ''
  if (expected ~= '' and before ~= expected) or before == document then return {'', '', ''} end
  if before == '' and call('HLEN', hash) >= tonumber(input[9]) then return {'full', '', ''} end
  local last = call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  local previous = last and last[1] or ''
  local id = call('XADD', log, 'MAXLEN', '~', input[10], '*', 'previous', previous, 'name', name, 'before', before,
    'after', document, 'actor', actor)
  if document == '' then call('HDEL', hash, name) else call('HSET', hash, name, document) end
  return {id, previous, before}
end

local tasks = {reset, probe, holds, change_document}
return pack(tasks[task]())
