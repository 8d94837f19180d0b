"""Builds the gateway, starts it in front of a model server, runs the contract suite, compares flavours. See run.sh."""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import compare
import host
from procs import RIG, ROOT, Failed, Proc, free_ports
from triton import FORWARD, Triton

RESULTS, LOGS = RIG / "results", RIG / "logs"
GATEWAY = RIG / "gateway"
SUITE_SECONDS = 1500


class Tally:
    """Counts what passed, over all parts."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.final = 0  # of those that failed, how many have been run again by themselves where there was a reason
        self.notes = []

    def copy(self):
        other = Tally()
        other.passed, other.failed, other.skipped, other.final = self.passed, self.failed, self.skipped, self.final
        other.notes = list(self.notes)
        return other

    def add(self, name, ok, note=""):
        self.passed += ok
        self.failed += not ok
        if not ok:
            self.notes.append(f"{name}: {note}" if note else name)
        print(f"{'ok  ' if ok else 'FAIL'} {name}{': ' + note if note else ''}", flush=True)

    def pytest(self, name, code, text):
        def count(word):
            return sum(map(int, re.findall(rf"(\d+) {word}", text.strip().splitlines()[-1] if text.strip() else "")))

        failed = count("failed") + count("errors?")
        self.passed, self.failed, self.skipped = self.passed + count("passed"), self.failed + failed, self.skipped + count("skipped")
        self.final += failed
        if code != 0:
            self.notes.append(f"{name}: {failed} failed" if failed else f"{name}: pytest ended with {code}")
            if not failed:
                self.failed += 1


def build():
    subprocess.run(["go", "build", "-o", GATEWAY, "./cmd/gateway"], cwd=ROOT, check=True, timeout=600)


def gateway_env(**extra):
    """The environment without whatever would configure a gateway by accident."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GATEWAY_", "TRITON_"))}
    return {**env, **extra}


@contextlib.contextmanager
def serving(triton, name):
    """gateway serve in front of triton with nothing but the environment; gives its data address."""
    data, admin = (f"127.0.0.1:{p}" for p in free_ports(2))
    env = gateway_env(TRITON_GRPC_HOST=triton, GATEWAY_DATA=data, GATEWAY_ADMIN=admin, GATEWAY_DRAIN_BEFORE="0s")
    with Proc(f"gateway ({name})", [GATEWAY, "serve"], LOGS / f"gateway-{name}.log", env) as p:
        p.wait_http(f"http://{data}/readyz", 30)
        yield data
        if (code := p.stop()) != 0:
            raise Failed(f"gateway ({name}) ended with {code} on SIGTERM:\n{p.tail()}")


@contextlib.contextmanager
def aliases(triton, name):
    """A second gateway, configured by aliases.yaml."""
    data, admin = (f"127.0.0.1:{p}" for p in free_ports(2))
    text = (ROOT / "rig/aliases.yaml").read_text()
    for mark, value in (("@TRITON@", triton), ("@DATA@", data), ("@ADMIN@", admin)):
        text = text.replace(mark, value)
    path = RIG / f"aliases-{name}.yaml"
    path.write_text(text)
    argv = [GATEWAY, "serve", "--config", path]
    with Proc(f"gateway with aliases ({name})", argv, LOGS / f"aliases-{name}.log", gateway_env()) as p:
        p.wait_http(f"http://{data}/readyz", 30)
        yield data


@contextlib.contextmanager
def real():
    """(gateway, address of Triton) with a real Triton behind."""
    with Triton(log=LOGS / "triton.log") as t, serving(t.grpc, "real") as data:
        yield data, t.grpc


@contextlib.contextmanager
def embedded():
    """(gateway, address of the model server) of a `gateway sandbox`."""
    data, admin, triton = (f"127.0.0.1:{p}" for p in free_ports(3))
    argv = [GATEWAY, "sandbox", "--data", data, "--admin", admin, "--triton", triton, "--faults", "off",
            "--models", ROOT / "triton-models", "--forward-headers", FORWARD]  # fmt: skip
    with Proc("gateway sandbox", argv, LOGS / "sandbox.log", gateway_env()) as p:
        p.wait_http(f"http://{data}/readyz", 60)
        yield data, triton


FLAVOURS = {"real": real, "embedded": embedded}


def suite(flavour, tally, extra=()):
    with FLAVOURS[flavour]() as (data, triton), aliases(triton, flavour) as aliased:
        print(f"\n== contract suite in front of the {flavour} model server ({data} -> {triton})", flush=True)
        results = RESULTS / f"{flavour}.json"
        results.unlink(missing_ok=True)
        env = {
            **os.environ, "GATEWAY": data, "ALIASED": aliased, "FLAVOUR": flavour, "RESULTS": str(results), "GATEWAY_BINARY": str(GATEWAY),
            "PYTHONDONTWRITEBYTECODE": "1", "TRITON": triton,
        }  # fmt: skip
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *extra, ROOT / "rig/e2e"]
        if flavour == "embedded":  # waits 40 s, and is about the gateway's front alone
            argv.append(f"--ignore={ROOT / 'rig/e2e/test_z_idle.py'}")
        p = subprocess.run([str(a) for a in argv], cwd=ROOT / "rig/e2e", env=env, stdout=subprocess.PIPE, text=True, timeout=SUITE_SECONDS)
        print(p.stdout, flush=True)
        tally.pytest(f"contract suite ({flavour})", p.returncode, p.stdout)


def agree(tally):
    differ = compare.differences(RESULTS / "real.json", RESULTS / "embedded.json")
    tally.add("real and embedded agree", not differ, f"{len(differ)} differences" if differ else "")
    for line in differ[:60]:
        print("  " + line)


def direct(tally):
    """Both servers without a gateway."""
    import direct as d

    with Triton(log=LOGS / "triton-direct.log") as t, embedded() as (_, other):
        RESULTS.mkdir(parents=True, exist_ok=True)
        tally.add("direct: codes agree", d.compare(t.grpc, other, RESULTS / "direct.md") == 0)


def load(tally):
    """The load tester against the sandbox, and what the metrics then say."""
    with embedded() as (data, _):
        argv = [sys.executable, ROOT / "loadtest/load_tester.py", "--host", f"http://{data}", "--rps", "50", "--duration", "6"]
        p = subprocess.run([str(a) for a in argv], timeout=300, stdout=subprocess.PIPE, text=True)
        print(p.stdout, flush=True)
        tally.add("load tester at 50/s", p.returncode == 0, "" if p.returncode == 0 else f"exit {p.returncode}")
        with urllib.request.urlopen(f"http://{data}/metrics", timeout=10) as r:
            page = r.read().decode()
        counted = sum(float(v) for v in re.findall(r'^gateway_request_duration_seconds_count\{[^}]*model="fraud"[^}]*\} (\S+)', page, re.M))
        tally.add("/metrics has the load tester's calls in its histogram", counted >= 300, f"{counted:g} calls")


def models(tally):
    """The committed models are what their script makes."""
    p = subprocess.run([sys.executable, ROOT / "triton-models/make_models.py", "--check"], timeout=300)
    tally.add("triton-models are what make_models.py makes", p.returncode == 0)


def own(tally):
    """The rig's own tests."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "rig/test_rig.py"]
    p = subprocess.run([str(a) for a in argv], cwd=ROOT / "rig", stdout=subprocess.PIPE, text=True, timeout=120)
    print(p.stdout, flush=True)
    tally.pytest("the rig's own tests", p.returncode, p.stdout)


def slow(tally):
    """What takes minutes: 200 s of silence."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "rig/e2e/test_upstream.py", "-k", "slow_call"]
    with embedded() as (data, _):
        env = {**os.environ, "SLOW": "1", "GATEWAY": data, "GATEWAY_BINARY": str(GATEWAY)}
        p = subprocess.run([str(a) for a in argv], cwd=ROOT / "rig/e2e", env=env, stdout=subprocess.PIPE, text=True, timeout=SUITE_SECONDS)
    print(p.stdout, flush=True)
    tally.pytest("slow tests", p.returncode, p.stdout)


def compose(tally):
    import compose_check

    compose_check.run(tally, GATEWAY)


def played(name, part, before):
    """The tally once a part has been run. One in which something is measured is run again when it failed while the machine stalled;
    tests of a suite run again by themselves (e2e/conftest.py), and one of them that fails is no reason to run all of it."""
    tally = before

    def play():
        nonlocal tally
        tally = before.copy()
        try:
            part(tally)
        except (Failed, subprocess.TimeoutExpired) as e:
            tally.add(name, False, str(e))
        return tally.failed - before.failed == tally.final - before.final

    if name in MEASURED:
        host.again(play, name)
    else:
        play()
    return tally


# The parts in which something takes time.
MEASURED = {"real", "embedded", "direct", "load", "compose", "slow"}
PARTS = ["own", "models", "real", "embedded", "compare", "direct", "load", "compose", "slow"]


def parts(what, extra):
    """What to run, in order."""
    everything = {
        "real": lambda t: suite("real", t, extra), "embedded": lambda t: suite("embedded", t, extra),
        "compare": agree, "load": load, "compose": compose, "direct": direct, "models": models, "own": own, "slow": slow,
    }  # fmt: skip
    names = PARTS[:-1] if what == "all" else [what]
    return [(n, everything[n]) for n in names]


def main():
    p = argparse.ArgumentParser(prog="rig/run.sh", description=__doc__)
    p.add_argument("what", nargs="?", default="all", choices=["all", *PARTS], help="(default: all, which is everything but slow)")
    p.add_argument("pytest", nargs="*", help="flags for pytest, after --")
    a = p.parse_args()
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, lambda *_: sys.exit("ended by a signal"))  # runs every clean-up on the way out
    tally, began = Tally(), time.monotonic()
    build()
    for name, part in parts(a.what, a.pytest):
        tally = played(name, part, tally)
    for note in tally.notes:
        print("failed: " + note)
    print(f"rig: {time.monotonic() - began:.0f} s; logs in {LOGS.relative_to(ROOT)}")
    print(f"{tally.passed} passed, {tally.failed} failed" + (f", {tally.skipped} skipped" if tally.skipped else ""))
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
