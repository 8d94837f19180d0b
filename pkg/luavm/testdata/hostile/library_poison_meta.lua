-- ends: error
getmetatable("").__index = {}
