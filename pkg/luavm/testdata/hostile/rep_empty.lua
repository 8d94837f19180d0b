-- ends: no_opinion
local s = (""):rep(1e15)
