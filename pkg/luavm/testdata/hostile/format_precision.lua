-- ends: error
return string.format("%.999999999f", 1)
