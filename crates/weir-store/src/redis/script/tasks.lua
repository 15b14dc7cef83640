-- The tasks of a call: decides plans, or runs another task.

if task == 0 then return pack(decide_all()) end

-- Most pages of some ten fields that one call of a reset reads, and most bytes, plus a page. A state may have hundreds of
-- kilobytes, a page few fields of a hash that had many, and other checks wait for the call.
local RESET_PAGES, RESET_BYTES = 100, 131072

-- Reads the pages of one call: the fields and values, and the next cursor.
local function reset_pages(hash, cursor)
  local found, length, pages, bytes = {}, 0, 0, 0
  repeat
    local page = call('HSCAN', hash, cursor, 'COUNT', 10)
    cursor, pages = page[1], pages + 1
    for index = 1, #page[2] do
      found[length + index], bytes = page[2][index], bytes + #page[2][index]
    end
    length = length + #page[2]
  until cursor == '0' or pages == RESET_PAGES or bytes >= RESET_BYTES
  return found, cursor
end

-- Returns the expiry, the state and the ledger of a value. A state that cannot have holds is not decoded, unless it is
-- `false` (0xc2).
local function reset_value(value, may_hold)
  local rest, expires = cmsgpack.unpack_limit(value, 1)
  if may_hold or string.byte(value, rest + 1) == 0xc2 then return unpacked(value) end
  return expires, true
end

-- Deletes the fields of a hash that belong to the key named by `field_prefix`, and with `subtree` also the fields of
-- the keys below it, some pages at a time. Returns the next cursor ('0': the end), whether the key itself had an
-- unexpired state, and whether any of the fields had. Unexpired holds stay, because their owners keep spending; expired
-- ones are dropped.
local function reset()
  local hash, field_prefix, subtree = KEYS[1], input[4], input[5] == 1
  local read, page, cursor = pcall(reset_pages, hash, input[6])
  if not read then
    local failure = type(page) == 'table' and page.err or tostring(page)
    if not string.find(failure, 'WRONGTYPE', 1, true) then error(failure) end
    -- Weir stores only hashes, so a key of another type is removed.
    call('UNLINK', hash)
    return {'0', 1, 1}
  end
  local held = call('HMGET', hash, HELD, RECORDS)
  local whole, ends = pcall(unpacked, held[1] or '')
  local may_hold = held[1] and not (whole and type(ends) == 'number' and ends <= now)
  local existed, removed, gone, kept = 0, 0, {}, {}
  for index = 1, #page, 2 do
    local field = page[index]
    if string.sub(field, 1, #field_prefix) == field_prefix then
      local own = string.byte(field, #field_prefix + 1) == 255
      if (own or subtree) and field ~= HELD and string.byte(field) ~= string.byte(RECORDS) then
        local read, expires, state, ledger = pcall(reset_value, page[index + 1], may_hold)
        local live, counts = {}, not (read and type(expires) == 'number' and (expires <= now or not state))
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
  if field_prefix == '' and subtree and not held[1] and not held[2] and (existed == 1 or cursor == '0') then
    -- The answer is already determined, so the whole hash is deleted in one call.
    call('UNLINK', hash)
    return {'0', existed, removed}
  end
  for first = 1, #kept, 1000 do
    call('HSET', hash, unpack(kept, first, math.min(first + 999, #kept)))
  end
  for first = 1, #gone, 1000 do
    call('HDEL', hash, unpack(gone, first, math.min(first + 999, #gone)))
  end
  return {cursor, existed, removed}
end

-- Tests that this server accepts writes, and that the ACL user may run all commands that a check needs.
local function probe()
  local hash = KEYS[1]
  call('HMGET', hash, 'probe')
  call('PTTL', hash)
  -- Must be the first write: without memory Redis rejects it only if the script has not written before.
  call('HSET', hash, 'probe', now)
  call('HDEL', hash, 'probe')
  call('PEXPIRE', hash, 1000)
  call('HRANDFIELD', hash, 1, 'WITHVALUES')
  return {now}
end

-- Changes a document, a field of a hash, and logs the change in a stream. Returns the change's position, the preceding
-- change's position, and the content before; instead of the position '' if the content was not the expected one, or
-- 'full'.
local function change_document()
  local hash, log, name, document, expected, actor = KEYS[1], KEYS[2], input[4], input[5], input[6], input[7]
  local before = call('HGET', hash, name) or ''
  if (expected ~= '' and before ~= expected) or before == document then return {'', '', ''} end
  if before == '' and call('HLEN', hash) >= tonumber(input[8]) then return {'full', '', ''} end
  local last = call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  local previous = last and last[1] or ''
  local id = call('XADD', log, 'MAXLEN', '~', input[9], '*', 'previous', previous, 'name', name, 'before', before,
    'after', document, 'actor', actor)
  if document == '' then call('HDEL', hash, name) else call('HSET', hash, name, document) end
  return {id, previous, before}
end

local tasks = {reset, probe, change_document}
return pack(tasks[task]())
