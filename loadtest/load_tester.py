#!/usr/bin/env python3
"""Sends predictions at a constant rate and tells how long they took.

    python loadtest/load_tester.py --host http://localhost:8080 --rps 50

Needs locust (pip install locust). The arrivals are open: a call is due every 1/rps seconds whether or not earlier ones have been
answered, and time that a call waited here for a free connection counts as its own. Exit code 1 when any call failed, or when
the machine could not send at the rate asked for.
"""

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import base64  # noqa: E402
import json  # noqa: E402
import random  # noqa: E402
import struct  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

import gevent  # noqa: E402
import gevent.pool  # noqa: E402
from locust import FastHttpUser, task  # noqa: E402
from locust.env import Environment  # noqa: E402

FEATURES = 16
REQUEST = "POST /v1/predict"


def body(rng, model, version):
    row = struct.pack(f"<{FEATURES}f", *(rng.gauss(0, 1) for _ in range(FEATURES)))
    user = f"user-{rng.randrange(10_000)}"
    return {
        "model_name": model, "model_version": version, "input_tensor": base64.b64encode(row).decode(), "metadata": {"user_id": user},
    }  # fmt: skip


class Caller(FastHttpUser):
    """One client with its own connection. It is told when to call, so it has no pace of its own."""

    connection_timeout = network_timeout = 30.0

    @task
    def never(self):
        """locust wants a task; calls come from arrive."""


def wrong(status, content, error):
    """What is wrong with an answer; None when nothing is."""
    if status != 200:
        return RuntimeError(f"HTTP {status}: {(content or b'').decode(errors='replace')[:200]}" if status else f"no answer: {error or 'connection refused or timed out'}")
    try:
        answer = json.loads(content)
    except ValueError:
        return RuntimeError("an answer that is no JSON")
    told = answer.get("status") if isinstance(answer, dict) else None
    return None if told == "OK" else RuntimeError(f"status {told}")


def call(user, message, due):
    """One call. It counts from the moment it was due, so that a slow server cannot make its own callers wait unseen."""
    with user.client.post("/v1/predict", json=message, name="sent", catch_response=True) as r:
        failed = wrong(r.status_code, r.content, getattr(r, "error", None))
        r.success()  # the raw call is kept apart; what counts is reported below
    user.environment.events.request.fire(
        request_type="", name=REQUEST, response_time=(time.monotonic() - due) * 1000, response_length=0, exception=failed, context={},
    )  # fmt: skip


def arrive(env, options):
    """Starts a call every 1/rps seconds for the duration; waits for the last. Gives the seconds that took."""
    rng = random.Random(options.seed)
    pool = gevent.pool.Pool(options.connections)
    Caller.host = options.host
    free = [Caller(env) for _ in range(options.connections)]

    def one(due):
        user = free.pop()
        try:
            call(user, body(rng, options.model, options.version), due)
        finally:
            free.append(user)

    began = time.monotonic()
    for i in range(int(options.rps * options.duration)):
        due = began + i / options.rps
        gevent.sleep(max(0.0, due - time.monotonic()))
        pool.spawn(one, due)
    sent = time.monotonic() - began
    pool.join(timeout=60)
    pool.kill()
    return sent


def report(stats, options, sent):
    """Prints what happened; True when all went well."""
    s = stats.get(REQUEST, "")
    wanted = int(options.rps * options.duration)
    rate = (wanted - 1) / sent if sent > 0 and wanted > 1 else options.rps
    print(f"{options.host}  model {options.model}  {options.rps:g}/s asked, {rate:.1f}/s sent, {s.num_requests} of {wanted} calls answered")
    if s.num_requests:
        at = {q: s.get_response_time_percentile(q) for q in (0.5, 0.95, 0.99, 0.999)}
        print("  ".join(f"p{q * 100:g} {ms:.0f} ms" for q, ms in at.items()) + f"  max {s.max_response_time:.0f} ms")
    print(f"failures {s.num_failures}")
    for e in stats.errors.values():
        print(f"  {e.occurrences} x {e.error}")
    late = rate < 0.95 * options.rps
    if late:
        print("this machine could not send at the rate asked for, or the server did not keep up: raise --connections or lower --rps")
    return not s.num_failures and s.num_requests == wanted and not late


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--host", default="http://localhost:8080", help="where the gateway serves (default: %(default)s)")
    p.add_argument("--rps", type=float, default=50, help="calls per second (default: %(default)s)")
    p.add_argument("--duration", type=float, default=30, help="seconds (default: %(default)s)")
    p.add_argument("--model", default="fraud", help="a model that takes rows of 16 FP32 (default: %(default)s)")
    p.add_argument("--version", type=int, default=0, help="its version; 0 leaves it to the gateway (default: %(default)s)")
    p.add_argument("--connections", type=int, default=64, help="calls that may be under way at once (default: %(default)s)")
    p.add_argument("--seed", type=int, default=1, help="of the rows sent (default: %(default)s)")
    options = p.parse_args()
    if not (0 < options.rps <= 5000 and 0 < options.duration <= 3600 and 0 < options.connections <= 1000):
        p.error("--rps must be above 0 and at most 5000, --duration at most 3600, --connections 1 to 1000")
    env = Environment(user_classes=[Caller], host=options.host)
    env.create_local_runner()  # it is what keeps the statistics; its users are never started
    sent = arrive(env, options)
    sys.exit(0 if report(env.stats, options, sent) else 1)


if __name__ == "__main__":
    main()
