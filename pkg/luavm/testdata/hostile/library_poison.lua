-- ends: error
string.rep = nil
