"""Whether the machine stood still while something was measured on it. What fails on a machine that stops for longer than the bounds
that it checks says nothing; so it is run again, and says so."""

import threading
import time

TICK = 0.01
# Half of the least bound of the suite: a machine that stops for so long measures nothing. Less is how machines are that have
# something to do, and excuses nothing.
STALLED = 0.25
# How often something is run at most.
PLAYS = 4


class Host:
    """Watches how late a clock ticks, from its construction until seen is called."""

    def __init__(self):
        self._longest, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        last = time.monotonic()
        while not self._stop.wait(TICK):
            now = time.monotonic()
            self._longest, last = max(self._longest, now - last - TICK), now

    def seen(self):
        """The longest time, in seconds, that the machine stood still."""
        self._stop.set()
        self._thread.join()
        return self._longest


def again(play, name):
    """Runs play, which reports whether it went well, until it does, or fails while the machine does not stall."""
    for left in reversed(range(PLAYS)):
        host = Host()
        try:
            well = play()
        finally:
            longest = host.seen()
        if well or longest < STALLED or not left:
            return well
        print(f"{name}: the machine stood still for {longest:.2f} s meanwhile: run again", flush=True)
