-- What all parts use; globals are slower.
local floor, min = math.floor, math.min
