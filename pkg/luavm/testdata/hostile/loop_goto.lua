-- ends: timeout
::again:: goto again
