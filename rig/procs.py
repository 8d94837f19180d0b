"""Processes of the rig: started in groups of their own, always ended, and waited for within bounds. Ports that are free."""

import os
import pathlib
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
RIG = CACHE / "rig"


class Failed(Exception):
    """The rig itself could not do its work; the text says what and why."""


# Ports below those that the system gives to whoever connects: nobody takes one before its server does, or while it is down.
PORTS = range(22_000, 32_000)
# Those that have been given away, to servers that may not have begun to listen.
GIVEN = set()


def free_ports(n):
    """n ports that nobody uses now, and that were not given away before."""
    held = []
    try:
        for port in random.sample(PORTS, 1000):
            if port in GIVEN:
                continue
            s = socket.socket()
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                s.close()
                continue
            held.append(s)
            GIVEN.add(port)
            if len(held) == n:
                return [s.getsockname()[1] for s in held]
        raise Failed(f"there are no {n} free ports")
    finally:
        for s in held:
            s.close()


class Proc:
    """A server with its log in a file."""

    def __init__(self, name, argv, log, env=None, cwd=None):
        self.name, self.log = name, pathlib.Path(log)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "wb") as out:
            self.p = subprocess.Popen(
                [str(a) for a in argv], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=env, cwd=cwd, start_new_session=True,
            )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def tail(self, lines=25):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_http(self, url, seconds):
        """Waits for 200 from url; fails when the process ends before, or the time does."""
        until = time.monotonic() + seconds
        last = "no answer"
        while time.monotonic() < until:
            if self.p.poll() is not None:
                raise Failed(f"{self.name} ended with {self.p.returncode} before it was ready:\n{self.tail()}")
            try:
                with urllib.request.urlopen(url, timeout=2) as r:
                    if r.status == 200:
                        return
            except urllib.error.HTTPError as e:
                last = f"HTTP {e.code}"
            except OSError as e:
                last = str(e)
            time.sleep(0.1)
        raise Failed(f"{self.name} was not ready after {seconds} s ({url}: {last}):\n{self.tail()}")

    def stop(self, seconds=20):
        """Asks the process to end, then makes its whole group; returns its exit code."""
        if self.p.poll() is None:
            self.p.terminate()
            try:
                self.p.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.p.wait()
