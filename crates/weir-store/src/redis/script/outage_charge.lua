-- Charges units admitted during an outage, as far as they fit, like charge_what_fits in charges.rs.
local function charge_outage()
  for index = 1, count do
    local units = math.min(input[costs_at + index], step(index, 0)[3])
    local decision, state = step(index, units)
    decisions[index], left_charged[index] = decision, units
    if units > 0 and state then put(index, state) end
  end
end

