"""KServe v2 over HTTP, by tritonclient.http and by hand."""

import gzip
import json

import numpy as np
import pytest
import tritonclient.http as th

from calls import raw

ROW = {"name": "INPUT", "datatype": "FP32", "shape": [1, 16], "data": [1.0] * 16}


@pytest.fixture(scope="module")
def client(gw):
    c = th.InferenceServerClient(gw.http_address, network_timeout=30)
    yield c
    c.close()


def tensor(name, data, datatype, binary=True):
    t = th.InferInput(name, list(data.shape), datatype)
    t.set_data_from_numpy(data, binary_data=binary)
    return t


def echo(gw, *inputs, headers=None, **more):
    return gw.json("POST", "/v2/models/echo/infer", {"inputs": list(inputs), **more}, headers=headers)


def output(answer, name):
    return next(o for o in answer["outputs"] if o["name"] == name)


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("fraud") and client.is_model_ready("fraud", "1") and not client.is_model_ready("fraud", "9")
    assert not client.is_model_ready("nope")
    meta = client.get_model_metadata("fraud")
    assert meta["name"] == "fraud" and meta["versions"] == ["1", "2"]
    assert meta["inputs"] == [{"name": "INPUT", "datatype": "FP32", "shape": [-1, 16]}]
    config = client.get_model_config("fraud")
    assert config["max_batch_size"] == 64
    assert "name" in client.get_server_metadata()


@pytest.mark.parametrize("request_compression", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_compression", [None, "gzip", "deflate"])
def test_compression(client, record, request_compression, response_compression):
    x = np.ones((64, 16), np.float32)
    answer = client.infer(
        "fraud", [tensor("INPUT", x, "FP32")], model_version="1",
        request_compression_algorithm=request_compression, response_compression_algorithm=response_compression,
    )  # fmt: skip
    assert answer.as_numpy("SCORE").shape == (64, 1)
    record.numbers(answer.as_numpy("SCORE")[0])


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_binary_and_json_tensors_in_any_mix(client, binary_in, binary_out):
    """O-14: the defaults of tritonclient, and all else it can be told."""
    x = np.array([[1.5, -2.25, 3e-40, 1e38]], np.float32)
    text = np.array([b"", b"a\x00b", "\U0001f600".encode()], object)
    out = [th.InferRequestedOutput(n, binary_data=binary_out) for n in ("FP32_OUT", "BYTES_OUT")]
    answer = client.infer("echo", [tensor("FP32", x, "FP32", binary_in), tensor("BYTES", text, "BYTES", binary_in)], outputs=out)
    assert answer.as_numpy("FP32_OUT").tobytes() == x.tobytes()
    got = [v if isinstance(v, bytes) else v.encode() for v in answer.as_numpy("BYTES_OUT")]
    assert got == list(text)


def test_big_binary_tensor(client):
    x = np.random.default_rng(0).random((1, 2 << 20), np.float32)
    out = [th.InferRequestedOutput("FP32_OUT", binary_data=True)]
    assert client.infer("echo", [tensor("FP32", x, "FP32")], outputs=out).as_numpy("FP32_OUT").tobytes() == x.tobytes()


def test_64_bit_integers_keep_their_digits(gw, record):
    """O-09: unquoted, and not by way of a float."""
    out = gw.http("POST", "/v2/models/echo/infer", b'{"inputs":[{"name":"INT64","datatype":"INT64","shape":[2],"data":[9007199254740993,-9223372036854775808]}]}')
    assert b"9007199254740993" in out.must() and b"-9223372036854775808" in out.value
    assert output(json.loads(out.value), "INT64_OUT")["data"] == [9007199254740993, -(2**63)]


def test_half_floats(gw, record):
    """O-10: refused as JSON input, by name; as JSON output exact, or refused by name."""
    refused = echo(gw, {"name": "FP16", "datatype": "FP16", "shape": [1], "data": [1.0]})
    assert refused.code == 400 and "FP16" in refused.message and "binary" in refused.message
    blob = raw("FP16", [1.5, -0.25, 65504])
    head = json.dumps(
        {"inputs": [{"name": "FP16", "datatype": "FP16", "shape": [3], "parameters": {"binary_data_size": len(blob)}}],
         "outputs": [{"name": "FP16_OUT"}]}
    ).encode()  # fmt: skip
    out = gw.http("POST", "/v2/models/echo/infer", head + blob, headers={"Inference-Header-Content-Length": str(len(head))})
    record.outcome(out)
    if out.ok:
        assert output(json.loads(out.value), "FP16_OUT")["data"] == [1.5, -0.25, 65504]
    else:
        assert out.code == 400 and "FP16" in out.message


def test_nan_and_infinities_are_bare_tokens(gw):
    """O-11, as Triton does it."""
    blob = raw("FP32", [[np.nan, np.inf, -np.inf, 1]])
    head = json.dumps(
        {"inputs": [{"name": "FP32", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": len(blob)}}],
         "outputs": [{"name": "FP32_OUT"}]}
    ).encode()  # fmt: skip
    out = gw.http("POST", "/v2/models/echo/infer", head + blob, headers={"Inference-Header-Content-Length": str(len(head))})
    text = out.must().decode().replace(" ", "")
    assert "[NaN,Infinity,-Infinity,1" in text


def test_bytes_in_json(gw):
    """O-12: what JSON can say comes back equal; bytes that are no text are never silently replaced."""
    texts = ["", "a\u0000b", "\U0001f600"]
    answer = echo(gw, {"name": "BYTES", "datatype": "BYTES", "shape": [3], "data": texts}).must()
    assert output(answer, "BYTES_OUT")["data"] == texts


def test_bytes_that_are_no_text(gw, record):
    blob = raw("BYTES", [b"\xff\xfe"])
    head = json.dumps(
        {"inputs": [{"name": "BYTES", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(blob)}}],
         "outputs": [{"name": "BYTES_OUT"}]}
    ).encode()  # fmt: skip
    out = gw.http("POST", "/v2/models/echo/infer", head + blob, headers={"Inference-Header-Content-Length": str(len(head))})
    record.outcome(out)
    assert not out.ok and "BYTES_OUT" in out.message and "binary" in out.message


def test_outputs_asked_for_and_their_order(gw):
    answer = echo(gw, {"name": "FP32", "datatype": "FP32", "shape": [1, 1], "data": [1]}, outputs=[{"name": "SEEN"}], id="abc").must()
    assert [o["name"] for o in answer["outputs"]] == ["SEEN"]
    assert answer["id"] == "abc" and answer["model_name"] == "echo" and answer["model_version"] == "1"


def test_parameters_reach_the_model(gw):
    answer = echo(gw, {"name": "FP32", "datatype": "FP32", "shape": [1, 1], "data": [1]}, parameters={"a": "x", "b": 7, "c": True}).must()
    seen = json.loads(output(answer, "SEEN")["data"][0])["parameters"]
    assert (seen["a"], seen["b"], seen["c"]) == ("x", 7, True)


def test_sequences(gw, record):
    sums = []
    for i in (1, 2, 3):
        body = {"parameters": {"sequence_id": 550055, "sequence_start": i == 1, "sequence_end": i == 3},
                "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [i]}]}  # fmt: skip
        sums.append(gw.json("POST", "/v2/models/seqsum/infer", body).must()["outputs"][0]["data"][0])
    assert sums == [1, 3, 6]


def test_gzip_by_hand(gw):
    body = gzip.compress(json.dumps({"inputs": [ROW]}).encode())
    out = gw.http("POST", "/v2/models/fraud/infer", body, headers={"Content-Encoding": "gzip", "Accept-Encoding": "identity"})
    assert len(json.loads(out.must())["outputs"][0]["data"]) == 1


def test_an_inflated_body_beyond_the_cap_is_refused(gw):
    bomb = gzip.compress(bytes(80 << 20), 1)
    out = gw.http("POST", "/v2/models/echo/infer", bomb, headers={"Content-Encoding": "gzip"})
    assert (out.code, out.reason) == (413, "TOO_LARGE")


def test_names_that_need_escaping(aliased):
    """O-16: decoded exactly once."""
    for path in ("team%2Fbert", "%E6%A8%A1%E5%9E%8B-1"):
        assert aliased.http("GET", f"/v2/models/{path}/ready").code == 200
        answer = aliased.json("POST", f"/v2/models/{path}/infer", {"inputs": [ROW]}).must()
        assert answer["model_name"] in ("team/bert", "模型-1")
    assert aliased.http("GET", "/v2/models/team/bert/ready").code == 404
    assert aliased.http("GET", "/v2/models/team%252Fbert/ready").code in (400, 404)


def test_probes(gw):
    assert gw.http("GET", "/livez").code == 200
    assert gw.http("GET", "/readyz").code == 200


def test_metrics_show_the_calls(gw):
    gw.json("POST", "/v2/models/fraud/infer", {"inputs": [ROW]}).must()
    text = gw.http("GET", "/metrics").must().decode()
    assert "# TYPE gateway_request_duration_seconds histogram" in text
    assert 'gateway_request_duration_seconds_count{' in text and 'model="fraud"' in text


def test_unknown_names_make_no_labels(gw):
    """O-17: at most one label value more."""
    for i in range(50):
        assert gw.http("GET", f"/v2/models/random-{i}").code == 404
        assert gw.json("POST", f"/v2/models/random-{i}/infer", {"inputs": [ROW]}).code == 404
    assert "random-" not in gw.http("GET", "/metrics").must().decode()
