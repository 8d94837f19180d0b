"""Which metadata reaches the model, and what comes back. The model echo tells what it saw (Triton forwards headers as parameters)."""

import json
import re

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from calls import request, tensors

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ONE = [("FP32", "FP32", np.ones((1, 1), np.float32))]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{}"


def seen(gw, metadata=(), **kw):
    """(what the model saw as parameters, the answer's headers)."""
    out = gw.infer(request("echo", ONE, **kw), metadata=list(metadata))
    return json.loads(tensors(out.must())["SEEN"][0])["parameters"], out.headers


def seen_http(gw, headers):
    body = {"inputs": [{"name": "FP32", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    out = gw.json("POST", "/v2/models/echo/infer", body, headers=headers)
    data = next(o for o in out.must()["outputs"] if o["name"] == "SEEN")["data"][0]
    return json.loads(data)["parameters"], out.headers


def test_ids_reach_the_model_and_come_back(gw):
    got, headers = seen(gw, [("x-request-id", "abc-1"), ("x-trace-id", "trace-1"), ("x-user-id", "alice")])
    assert (got["x-request-id"], got["x-trace-id"], got["x-user-id"]) == ("abc-1", "trace-1", "alice")
    assert headers["x-request-id"] == ["abc-1"]
    assert headers["x-gateway-target"] and headers["x-gateway-model-version"] == ["1"] and headers["x-gateway-upstream"]


def test_ids_over_http(gw):
    got, headers = seen_http(gw, {"X-Request-Id": "abc-2", "X-Trace-Id": "trace-2", "X-User-Id": "bob"})
    assert (got["x-request-id"], got["x-trace-id"], got["x-user-id"]) == ("abc-2", "trace-2", "bob")
    assert headers["x-request-id"] == ["abc-2"] and headers["x-gateway-model-version"] == ["1"]


@pytest.mark.parametrize("bad", [None, "a" * 5000, "", "a b", "semi;colon", "x" * 129], ids=repr)
def test_a_bad_request_id_is_replaced(gw, bad):
    """O-20."""
    got, headers = seen(gw, [] if bad is None else [("x-request-id", bad)])
    assert UUID7.fullmatch(got["x-request-id"]) and headers["x-request-id"] == [got["x-request-id"]]


@pytest.mark.parametrize("good", ["abc-1", "A.b_c-9", "x" * 128])
def test_a_good_request_id_is_kept(gw, good):
    got, headers = seen(gw, [("x-request-id", good)])
    assert got["x-request-id"] == good and headers["x-request-id"] == [good]


@pytest.mark.parametrize("bad", ["gr\xfc\xdfe", "tab\there"])
def test_a_bad_request_id_that_only_http_can_carry(gw, bad):
    got, _ = seen_http(gw, {"X-Request-Id": bad})
    assert UUID7.fullmatch(got["x-request-id"])


def test_each_call_gets_its_own_id(gw):
    assert seen(gw)[0]["x-request-id"] != seen(gw)[0]["x-request-id"]


def test_traceparent_only_for_sampled_calls(gw):
    sampled, _ = seen(gw, [("traceparent", TRACEPARENT.format("01"))])
    assert sampled["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-") and sampled["traceparent"].endswith("-01")
    assert sampled["x-trace-id"] == "0af7651916cd43dd8448eb211c80319c"
    unsampled, _ = seen(gw, [("traceparent", TRACEPARENT.format("00"))])
    assert "traceparent" not in unsampled
    assert unsampled["x-trace-id"] == "0af7651916cd43dd8448eb211c80319c"


def test_credentials_go_no_further(gw):
    got, _ = seen(gw, [("x-api-key", "secret"), ("authorization", "Bearer secret")])
    assert "secret" not in json.dumps(got)
    got, _ = seen_http(gw, {"X-Api-Key": "secret", "Authorization": "Bearer secret"})
    assert "secret" not in json.dumps(got)


def test_binary_metadata_passes(gw):
    """O-04: the value's three bytes; Triton cuts the forwarded copy at the zero byte, so the call going through is the test here."""
    seen(gw, [("sig-bin", b"\x00\xff\x0a")])
    seen(gw, [("sig-bin", b"abc")])


def test_other_metadata_passes(gw):
    got, _ = seen(gw, [("x-test-a", "1"), ("x-user-type", "premium")])
    assert (got["x-test-a"], got["x-user-type"]) == ("1", "premium")


def test_gateway_names_cannot_be_set_by_clients(gw):
    out = gw.infer(request("echo", ONE), metadata=[("x-gateway-target", "mine"), ("x-gateway-upstream", "mine")])
    assert "mine" not in json.dumps(out.headers)


def test_metadata_of_a_message_is_honoured(gw, predict_pb2):
    """PredictionRequest.metadata names request, trace and user."""
    out = gw.predict("fraud", np.ones(16, np.float32).tobytes(), metadata={"request_id": "m-1", "trace_id": "t-1", "user_id": "u-1"})
    out.must()
    assert out.headers["x-request-id"] == ["m-1"]


def test_huge_headers_are_refused(gw, record):
    out = gw.infer(request("echo", ONE), metadata=[("x-test-huge", "x" * 20_000)])
    assert out.code in ("RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"), out
    assert gw.infer(request("echo", ONE)).ok, "the connection must still serve others"
    assert gw.http("GET", "/v2", headers={"X-Test-Huge": "x" * 40_000}).code == 431


def test_parameters_and_priority_reach_the_model_unchanged(gw):
    got, _ = seen(gw, params={"s": "x", "i": 7, "b": True, "d": 1.5, "timeout": 5_000_000})
    assert (got["s"], got["i"], got["b"], got["d"]) == ("x", 7, True, 1.5)
    assert "timeout" not in got


def test_the_gateway_writes_no_parameters_of_its_own(gw):
    got, _ = seen(gw)
    assert set(got) <= {"x-request-id", "x-trace-id", "x-user-id"}


def test_a_field_that_we_do_not_know_passes(gw):
    """Wire bytes of a newer client: an unknown field does no harm."""
    blob = request("echo", ONE).SerializeToString() + b"\xf2\x3f\x03abc"
    out = gw.unary("/inference.GRPCInferenceService/ModelInfer", blob, pb.ModelInferResponse)
    assert out.must().model_name == "echo"
