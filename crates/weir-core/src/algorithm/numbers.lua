-- Locals for all other files, since globals are slower.
local floor, min = math.floor, math.min
