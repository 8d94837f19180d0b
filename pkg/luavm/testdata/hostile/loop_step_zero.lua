-- ends: no_opinion
for i = 1, 2, 0 do end
