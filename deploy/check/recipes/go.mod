module weir/deploy/check/recipes

go 1.26.0
