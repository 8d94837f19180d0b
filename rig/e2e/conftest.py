"""The suite is told by the environment what to test:

GATEWAY    host:port of the gateway's data port
GATEWAY_HTTP  the same for HTTP, where it differs (a bare Triton: then what only a gateway does fails)
ALIASED    host:port of a second gateway before the same models, configured by rig/aliases.yaml
FLAVOUR    real | embedded: which model server stands behind; names the file of results
GATEWAY_BINARY  a gateway that tests may start themselves; without it those are skipped
RESULTS    where to write numbers, codes and reasons of every case as JSON; without it nothing is written
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import grpc
import numpy as np
import pytest
from _pytest.runner import runtestprotocol

import calls

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "rig"))
import host  # noqa: E402
RESULTS = {"flavour": os.environ.get("FLAVOUR", "real"), "outcomes": {}, "numbers": {}}


def pytest_runtest_protocol(item, nextitem):
    """A test that fails while the machine stalls is run again; see host.py."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = []

    def play():
        name = name_of(item)
        for table in (RESULTS["outcomes"], RESULTS["numbers"]):
            for key in [k for k in table if k == name or k.startswith(name + "/")]:
                del table[key]
        reports[:] = runtestprotocol(item, nextitem=nextitem, log=False)
        return not any(r.failed for r in reports)

    host.again(play, item.nodeid)
    for r in reports:
        item.ihook.pytest_runtest_logreport(report=r)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def name_of(node):
    """What results are kept under."""
    return node.nodeid.split("/")[-1]


def pytest_sessionfinish(session, exitstatus):
    if path := os.environ.get("RESULTS"):
        out = pathlib.Path(path)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(RESULTS, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


@pytest.fixture(scope="session")
def flavour():
    return RESULTS["flavour"]


@pytest.fixture(scope="session")
def predict_pb2():
    """The users' proto, compiled as they would."""
    out = tempfile.mkdtemp(prefix="predict-pb2-")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto/ml/inference'}", f"--python_out={out}",
         f"--grpc_python_out={out}", "inference.proto"],
        check=True, timeout=60,
    )  # fmt: skip
    sys.path.insert(0, out)
    import inference_pb2

    return inference_pb2


@pytest.fixture(scope="session")
def predict_grpc(predict_pb2):
    import inference_pb2_grpc

    return inference_pb2_grpc


@pytest.fixture(scope="session")
def address():
    return os.environ["GATEWAY"]


@pytest.fixture(scope="session")
def gw(address, predict_pb2):
    c = calls.Client(address, predict_pb2, os.environ.get("GATEWAY_HTTP"))
    yield c
    c.close()


@pytest.fixture(scope="session")
def aliased(predict_pb2):
    if "ALIASED" not in os.environ:
        pytest.skip("ALIASED names no second gateway")
    c = calls.Client(os.environ["ALIASED"], predict_pb2)
    yield c
    c.close()


@pytest.fixture(scope="session", autouse=True)
def pinging(address):
    """(channel, when it was idle, states it went through): a connection that pings every 10 s while nothing is under way."""
    channel = grpc.insecure_channel(
        address,
        [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0),
         ("grpc.http2.min_time_between_pings_ms", 10_000), ("grpc.use_local_subchannel_pool", 1)],
    )  # fmt: skip
    states = []
    channel.subscribe(lambda state: states.append(state.name), try_to_connect=True)
    grpc.channel_ready_future(channel).result(60)
    yield channel, time.monotonic(), states
    channel.close()


class Record:
    """Keeps what the two flavours must agree on, under the name of the test."""

    def __init__(self, name):
        self.name = name

    def _at(self, table, label):
        key = self.name + (f"/{label}" if label else "")
        assert key not in RESULTS[table], f"recorded twice: {key}"
        return key

    def outcome(self, out, label=""):
        RESULTS["outcomes"][self._at("outcomes", label)] = {"code": out.code, "reason": out.reason, "message": out.message}

    def numbers(self, array, label=""):
        a = np.asarray(array)
        data = [x.hex() if isinstance(x, bytes) else str(x) for x in a.ravel()] if a.dtype == object else a.ravel().tolist()
        RESULTS["numbers"][self._at("numbers", label)] = {"shape": list(a.shape), "data": data}


@pytest.fixture
def record(request):
    return Record(name_of(request.node))
