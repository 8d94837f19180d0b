"""The users' own service: a client made from their proto, numpy in and out; grpcurl; plain HTTP."""

import base64
import json
import pathlib
import subprocess

import grpc
import numpy as np
import pytest

from calls import request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROWS = np.random.default_rng(3).random((3, 16), np.float32)


@pytest.fixture(scope="module")
def stub(address, predict_grpc):
    with grpc.insecure_channel(address) as channel:
        yield predict_grpc.InferenceServiceStub(channel)


def test_their_client_works_as_it_is(stub, predict_pb2, record):
    message = predict_pb2.PredictionRequest(
        model_name="fraud", model_version=1, input_tensor=ROWS.tobytes(), metadata={"trace_id": "t-1", "user_id": "u-1"}
    )
    answer = stub.Predict(message, timeout=20)
    scores = np.frombuffer(answer.output_tensor, dtype=np.float32)
    assert scores.shape == (3,) and ((scores >= 0) & (scores <= 1)).all()
    assert answer.status == "OK" and answer.confidence == pytest.approx(scores[0], abs=1e-6) and answer.latency_ms >= 1
    record.numbers(scores)


def test_their_stream_works_as_it_is(stub, predict_pb2):
    """Both directions open at once: the second request is made from the first answer."""
    answers = []

    def requests():
        yield predict_pb2.PredictionRequest(model_name="fraud", model_version=1, input_tensor=ROWS[:1].tobytes())
        yield predict_pb2.PredictionRequest(model_name="fraud", model_version=2, input_tensor=ROWS[:1].tobytes())

    for answer in stub.PredictStream(requests(), timeout=20):
        answers.append(np.frombuffer(answer.output_tensor, np.float32)[0])
    assert len(answers) == 2 and answers[0] != answers[1]


def test_compressed_messages_are_understood(stub, predict_pb2):
    message = predict_pb2.PredictionRequest(model_name="fraud", input_tensor=ROWS.tobytes())
    assert stub.Predict(message, timeout=20, compression=grpc.Compression.Gzip).status == "OK"


def test_a_deadline_ends_the_call_in_time(gw, record):
    slow = request("echo", [("FP32", "FP32", np.ones((1, 1), np.float32))], params={"delay_ms": 5000})
    for _ in range(10):
        out = gw.infer(slow, seconds=0.3)
        assert out.code == "DEADLINE_EXCEEDED"
        if out.reason:
            break  # else the client's own clock was faster, as on a busy machine, and nobody knows what the gateway said
    record.outcome(out)


def grpcurl(*args, fails=False):
    p = subprocess.run([ROOT / ".cache/bin/grpcurl", "-plaintext", "-max-time", "20", *args], capture_output=True, text=True, timeout=60)
    assert fails or p.returncode == 0, p.stderr
    return p.stderr if fails else p.stdout


def test_grpcurl_lists_and_describes(address):
    services = grpcurl(address, "list").split()
    assert {"ml.inference.InferenceService", "inference.GRPCInferenceService", "grpc.health.v1.Health"} <= set(services)
    assert "rpc Predict" in grpcurl(address, "describe", "ml.inference.InferenceService")
    assert "raw_input_contents" in grpcurl(address, "describe", "inference.ModelInferRequest")


def test_grpcurl_predicts(address, record):
    body = {"model_name": "fraud", "model_version": 1, "input_tensor": base64.b64encode(ROWS.tobytes()).decode()}
    answer = json.loads(grpcurl("-d", json.dumps(body), address, "ml.inference.InferenceService/Predict"))
    assert answer["status"] == "OK"
    record.numbers(np.frombuffer(base64.b64decode(answer["outputTensor"]), np.float32))


def test_grpcurl_sees_the_reason_of_an_error(address):
    text = grpcurl("-d", '{"model_name": "nope"}', address, "ml.inference.InferenceService/Predict", fails=True)
    assert "NotFound" in text and "nope" in text


def test_grpcurl_health(address):
    assert "SERVING" in grpcurl(address, "grpc.health.v1.Health/Check")


def test_plain_http(gw, record):
    body = {"model_name": "fraud", "model_version": 1, "input_tensor": base64.b64encode(ROWS.tobytes()).decode(), "metadata": {"user_id": "u"}}
    out = gw.json("POST", "/v1/predict", body)
    answer = out.must()
    assert answer["status"] == "OK" and answer["latency_ms"] is not None
    scores = np.frombuffer(base64.b64decode(answer["output_tensor"]), np.float32)
    assert scores.shape == (3,)
    assert out.headers["x-gateway-model-version"] == ["1"] and out.headers["x-request-id"]
    record.numbers(scores)


def test_plain_http_may_use_the_names_of_proto_json(gw):
    """Proto's JSON knows both spellings of a field."""
    body = {"modelName": "fraud", "inputTensor": base64.b64encode(ROWS.tobytes()).decode()}
    assert gw.json("POST", "/v1/predict", body).must()["status"] == "OK"
