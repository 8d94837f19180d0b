"""What an upstream really gets: metadata byte for byte, deadlines, cancels; and how the gateway starts and leaves.

These tests start gateways of their own (GATEWAY_BINARY) in front of a recorder."""

import os
import pathlib
import signal
import socket
import struct
import sys
import threading
import time

import pytest
from tritonclient.grpc import service_pb2 as pb

import calls
from calls import request
from recorder import Recorder, until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from procs import Proc, free_ports  # noqa: E402

pytestmark = pytest.mark.skipif("GATEWAY_BINARY" not in os.environ, reason="GATEWAY_BINARY names no gateway to start")
EAR = [("INPUT", "UINT8", (b"abc", [3]))]


@pytest.fixture(scope="module")
def recorder():
    r = Recorder()
    yield r
    r.stop()


class Gateway:
    """A gateway of this test, in front of upstream."""

    def __init__(self, upstream, tmp_path, predict_pb2, config=None, **env):
        self.data, self.admin = (f"127.0.0.1:{p}" for p in free_ports(2))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("GATEWAY", "TRITON"))}
        clean |= {"TRITON_GRPC_HOST": upstream, "GATEWAY_DATA": self.data, "GATEWAY_ADMIN": self.admin, "GATEWAY_DRAIN_BEFORE": "0s", **env}
        argv = [os.environ["GATEWAY_BINARY"], "serve"]
        if config:
            path = tmp_path / "gateway.yaml"
            path.write_text(config)
            argv += ["--config", path]
        self.proc = Proc("gateway", argv, tmp_path / "gateway.log", clean)
        self.client = calls.Client(self.data, predict_pb2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.proc.stop()

    def ready(self):
        self.proc.wait_http(f"http://{self.data}/readyz", 30)
        return self

    def get(self, path):
        """The status of a GET; None when nobody listens."""
        try:
            return self.client.http("GET", path, seconds=5).code
        except OSError:
            return None


@pytest.fixture(scope="module")
def shared(recorder, tmp_path_factory, predict_pb2):
    with Gateway(recorder.address, tmp_path_factory.mktemp("gateway"), predict_pb2) as g:
        yield g.ready()


@pytest.fixture
def ear(recorder, shared):
    """(client, recorder) with nothing recorded yet."""
    recorder.clear()
    return shared.client, recorder


def test_binary_metadata_arrives_byte_for_byte(ear):
    """O-04, gRPC."""
    client, recorder = ear
    client.infer(request("ear", EAR), metadata=[("sig-bin", b"\x00\xff\x0a"), ("many", "a"), ("many", "b")]).must()
    seen = recorder.wait()
    assert seen.metadata["sig-bin"] == [b"\x00\xff\x0a"]
    assert seen.metadata["many"] == ["a", "b"]


def infer_http(client, headers):
    body = {"inputs": [{"name": "INPUT", "datatype": "UINT8", "shape": [3], "data": [97, 98, 99]}]}
    return client.json("POST", "/v2/models/ear/infer", body, headers=headers)


def test_binary_headers_arrive_byte_for_byte(ear):
    """O-04, HTTP: base64 as gRPC writes it."""
    client, recorder = ear
    infer_http(client, {"Sig-Bin": "AP8K"}).must()
    assert recorder.wait().metadata["sig-bin"] == [b"\x00\xff\x0a"]


def test_hop_by_hop_headers_stay_on_their_hop(ear):
    """O-04: what belongs to one connection, and what gRPC reserves, is never copied."""
    client, recorder = ear
    infer_http(client, {
        "Connection": "keep-alive, x-private", "X-Private": "1", "Te": "gzip", "Keep-Alive": "timeout=5", "Grpc-Timeout": "1n",
        "Grpc-Encoding": "gzip", "Proxy-Authorization": "secret", "Upgrade": "h2c", "X-Test": "kept", "Cookie": "session=secret",
        "Triton-Grpc-Protocol-K": "v", "Expect": "",
    }).must()  # fmt: skip
    got = recorder.wait().metadata
    assert got["x-test"] == ["kept"]
    for name in ("connection", "x-private", "keep-alive", "grpc-timeout-x", "grpc-encoding", "proxy-authorization", "upgrade", "host",
                 "content-length", "triton-grpc-protocol-k"):  # fmt: skip
        assert name not in got, name
    assert got.get("te", ["trailers"]) == ["trailers"]


def test_restricted_protocol_headers_of_clients_are_dropped(ear):
    """O-18: only the configuration may send these."""
    client, recorder = ear
    client.infer(request("ear", EAR), metadata=[("triton-grpc-protocol-infer", "v"), ("x-gateway-target", "mine")]).must()
    got = recorder.wait().metadata
    assert "triton-grpc-protocol-infer" not in got and "mine" not in str(got)


def test_every_call_carries_ids(ear):
    client, recorder = ear
    out = client.infer(request("ear", EAR))
    out.must()
    got = recorder.wait().metadata
    assert got["x-request-id"] == out.headers["x-request-id"] and len(got["x-request-id"]) == 1
    assert len(got["x-trace-id"][0]) == 32
    assert "x-user-id" not in got or got["x-user-id"] == [""]


def test_ids_of_a_message_reach_the_upstream(ear):
    client, recorder = ear
    client.predict("ear", b"abc", metadata={"trace_id": "t-1", "user_id": "u-1", "request_id": "r-1", "other": "x"}).must()
    got = recorder.wait().metadata
    assert (got["x-trace-id"], got["x-user-id"], got["x-request-id"]) == (["t-1"], ["u-1"], ["r-1"])


def test_the_upstreams_metadata_comes_back(ear):
    client, recorder = ear
    call = client.channel.unary_unary(calls.KSERVE + "ModelInfer", lambda m: m.SerializeToString(), pb.ModelInferResponse.FromString)
    _, info = call.with_call(request("ear", EAR), timeout=10)
    first, last = calls.metadata_of(info.initial_metadata()), calls.metadata_of(info.trailing_metadata())
    assert first["x-model-note"] == ["first"] and first["note-bin"] == [b"\x00\xff"]
    assert last["x-model-last"] == ["last"]


def test_the_request_pins_its_version_and_nothing_else_changes(ear):
    client, recorder = ear
    sent = request("ear", EAR, id="mine", params={"a": "b"}, outputs=["OUTPUT"])
    client.infer(sent).must()
    got = recorder.wait().request
    assert got.model_version == "1"
    got.model_version = ""
    assert got == sent


def test_a_predict_becomes_the_same_tensor(ear):
    client, recorder = ear
    assert client.predict("ear", b"0123456789").must().output_tensor == b"0123456789"
    got = recorder.wait().request
    assert (got.model_name, got.model_version) == ("ear", "1")
    assert [(i.name, i.datatype, list(i.shape)) for i in got.inputs] == [("INPUT", "UINT8", [10])]
    assert list(got.raw_input_contents) == [b"0123456789"]


def test_the_upstream_gets_less_time_than_the_caller_has(ear):
    """O-28."""
    client, recorder = ear
    client.infer(request("ear", EAR), seconds=0.3).must()
    assert 0.1 < recorder.wait().remaining < 0.3
    assert "timeout" not in recorder.calls[0].request.parameters


def test_without_a_deadline_the_models_own_limit_holds(ear):
    client, recorder = ear
    client.channel.unary_unary(calls.KSERVE + "ModelInfer", lambda m: m.SerializeToString())(request("ear", EAR))
    assert 30 < recorder.wait().remaining <= 60


def http2_call(address, path, message, timeout):
    """One gRPC call by hand, since no client sends a deadline that has passed. Returns once its stream has ended."""

    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def header(name, value):
        return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers",
              "content-type": "application/grpc", "grpc-timeout": timeout}  # fmt: skip
    headers = b"".join(header(k, v) for k, v in fields.items())
    data = b"\x00" + struct.pack(">I", len(message)) + message
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as s, s.makefile("rb") as r:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, headers) + frame(0, 1, 1, data))
        while True:
            head = r.read(9)
            r.read(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if stream == 1 and (kind == 3 or flags & 1):
                return


def test_a_call_that_is_late_already_is_not_sent(ear):
    """O-28: no upstream call when the caller's time is over on arrival."""
    client, recorder = ear
    message = request("ear", EAR).SerializeToString()
    http2_call(client.address, calls.KSERVE + "ModelInfer", message, "10S")
    assert len(recorder.calls) == 1
    http2_call(client.address, calls.KSERVE + "ModelInfer", message, "1n")
    client.infer(request("ear", EAR)).must()  # whatever was sent before has arrived by now
    assert len(recorder.calls) == 2


@pytest.mark.parametrize("how", ["unary", "stream", "predict", "http"])
def test_a_cancel_reaches_the_upstream_at_once(ear, predict_pb2, how):
    """O-07."""
    client, recorder = ear
    recorder.seconds = 10
    message = request("ear", EAR)
    if how == "http":
        s = socket.create_connection(client.address.split(":"))
        body = b'{"inputs":[{"name":"INPUT","datatype":"UINT8","shape":[3],"data":[1,2,3]}]}'
        s.sendall(b"POST /v2/models/ear/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        give_up = s.close
    elif how == "stream":
        held = threading.Event()

        def messages():
            yield message
            held.wait(20)

        running = client.channel.stream_stream(calls.KSERVE + "ModelStreamInfer", lambda m: m.SerializeToString())(messages())
        give_up = running.cancel
    else:
        if how == "predict":
            message = predict_pb2.PredictionRequest(model_name="ear", input_tensor=b"abc")
        path = calls.PREDICT + "Predict" if how == "predict" else calls.KSERVE + "ModelInfer"
        running = client.channel.unary_unary(path, lambda m: m.SerializeToString()).future(message)
        give_up = running.cancel
    seen = recorder.wait()
    began = time.monotonic()
    give_up()
    assert seen.ended.wait(5), "the upstream never heard of it"
    assert time.monotonic() - began < 0.5
    if how == "stream":
        held.set()


def test_calls_of_one_connection_are_shared_out(tmp_path, predict_pb2):
    """O-03: 200 calls on one client channel, two upstreams: 70 to 130 each."""
    both = Recorder(), Recorder()
    with Gateway(",".join(r.address for r in both), tmp_path, predict_pb2) as g:
        g.ready()
        assert until(lambda: [g.client.infer(request("ear", EAR)).must() for _ in range(4)] and all(r.calls for r in both), 10)
        for r in both:
            r.clear()
        call = g.client.channel.unary_unary(calls.KSERVE + "ModelInfer", lambda m: m.SerializeToString(), pb.ModelInferResponse.FromString)
        for _ in range(20):
            for running in [call.future(request("ear", EAR), timeout=10) for _ in range(10)]:
                running.result()
        counts = [len(r.calls) for r in both]
        assert sum(counts) == 200 and all(70 <= n <= 130 for n in counts), counts
    for r in both:
        r.stop()


def test_an_outage_later_leaves_the_gateway_ready(tmp_path, predict_pb2):
    """O-30: once ready, only leaving unreadies it; and it serves again by itself within 5 s."""
    first = Recorder()
    port = int(first.address.split(":")[1])
    with Gateway(first.address, tmp_path, predict_pb2) as g:
        g.ready().client.infer(request("ear", EAR)).must()
        first.stop()
        out = g.client.infer(request("ear", EAR), seconds=5)
        assert out.code == "UNAVAILABLE" and out.reason and out.retry
        for _ in range(10):
            assert g.get("/readyz") == 200
            time.sleep(0.1)
        again = Recorder(port)
        try:
            assert until(lambda: g.client.infer(request("ear", EAR), seconds=2).ok, 5)
        finally:
            again.stop()


def test_a_dead_upstream_leaves_the_gateway_alive(tmp_path, predict_pb2):
    """O-30: live at once, ready 10 s after the start, refusing clearly meanwhile and after."""
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with Gateway(nobody, tmp_path, predict_pb2) as g:
        began = time.monotonic()
        assert until(lambda: g.get("/livez") == 200, 5)
        assert g.get("/readyz") == 503
        out = g.client.infer(request("ear", EAR), seconds=5)
        assert out.code == "UNAVAILABLE" and out.reason in ("NO_ENDPOINT", "UPSTREAM_UNAVAILABLE")
        assert out.retry
        assert until(lambda: g.get("/readyz") == 200, 15)
        assert 8 < time.monotonic() - began < 13


def test_an_upstream_that_comes_up_makes_the_gateway_ready(tmp_path, predict_pb2):
    """O-30, and served within 5 s of coming up."""
    port = free_ports(1)[0]
    with Gateway(f"127.0.0.1:{port}", tmp_path, predict_pb2) as g:
        assert until(lambda: g.get("/livez") == 200, 5)
        late = Recorder(port)
        try:
            assert until(lambda: g.client.infer(request("ear", EAR), seconds=2).ok, 5)
            assert until(lambda: g.get("/readyz") == 200, 5)
        finally:
            late.stop()


def test_leaving_is_orderly(recorder, tmp_path, predict_pb2):
    """O-30: SIGTERM turns readiness off first, calls are still taken for a while, those under way finish, the exit code is 0."""
    recorder.clear()
    recorder.seconds = 2.5
    with Gateway(recorder.address, tmp_path, predict_pb2, GATEWAY_DRAIN_BEFORE="1500ms", GATEWAY_DRAIN_GRACE="10s") as g:
        g.ready()
        running = g.client.channel.unary_unary(
            calls.KSERVE + "ModelInfer", lambda m: m.SerializeToString(), pb.ModelInferResponse.FromString
        ).future(request("ear", EAR), timeout=20)
        recorder.wait()
        recorder.seconds = 0
        began = time.monotonic()
        g.proc.p.send_signal(signal.SIGTERM)
        assert until(lambda: g.get("/readyz") == 503, 1)
        assert g.get("/livez") == 200
        assert g.client.infer(request("ear", EAR), seconds=5).ok, "calls are still taken before the drain"
        assert running.result(timeout=20).raw_output_contents[0] == b"abc"
        assert g.proc.p.wait(15) == 0
        assert time.monotonic() - began < 9


def test_a_slow_call_outlives_pings_and_silence(recorder, tmp_path, predict_pb2):
    """O-02 (a), only with SLOW=1: 200 s of silence toward an upstream that forbids pings."""
    if os.environ.get("SLOW") != "1":
        pytest.skip("takes 200 s; SLOW=1 runs it")
    recorder.clear()
    recorder.seconds = 200
    config = "defaults: {timeout: {max: 300s}}\n"
    with Gateway(recorder.address, tmp_path, predict_pb2, config=config) as g:
        g.ready()
        assert g.client.infer(request("ear", EAR), seconds=280).ok
