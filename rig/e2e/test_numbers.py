"""The models' numbers, through every way in."""

import json
import threading

import numpy as np
import pytest
import tritonclient.grpc as tg
import tritonclient.http as th

import goldens
from calls import request, tensors, unraw

cases = pytest.mark.parametrize(("model", "version", "name", "ins", "outs"), goldens.CASES, ids=goldens.IDS)


def close(got, want):
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=1e-5, rtol=0)


@cases
def test_model_infer(gw, record, model, version, name, ins, outs):
    out = gw.infer(request(model, [(k, d, a) for k, (d, a) in ins.items()], version=version, id="golden"))
    answer = out.must()
    assert (answer.model_name, answer.model_version, answer.id) == (model, version, "golden")
    for k, got in tensors(answer).items():
        close(got, outs[k])
        record.numbers(got, k)


@cases
def test_tritonclient_grpc(address, record, model, version, name, ins, outs):
    with tg.InferenceServerClient(address) as client:
        tensors_in = []
        for k, (datatype, a) in ins.items():
            t = tg.InferInput(k, list(a.shape), datatype)
            t.set_data_from_numpy(a)
            tensors_in.append(t)
        wanted = [tg.InferRequestedOutput(k) for k in outs]
        answer = client.infer(model, tensors_in, model_version=version, outputs=wanted, request_id="r", client_timeout=30)
        assert answer.get_response().id == "r"
        for k, want in outs.items():
            close(answer.as_numpy(k), want)
            record.numbers(answer.as_numpy(k), k)


@cases
def test_http_binary(gw, record, model, version, name, ins, outs):
    client = th.InferenceServerClient(gw.http_address, network_timeout=30)
    tensors_in = []
    for k, (datatype, a) in ins.items():
        t = th.InferInput(k, list(a.shape), datatype)
        t.set_data_from_numpy(a)
        tensors_in.append(t)
    answer = client.infer(model, tensors_in, model_version=version)
    for k, want in outs.items():
        close(answer.as_numpy(k), want)
        record.numbers(answer.as_numpy(k), k)
    client.close()


@cases
def test_http_json(gw, record, model, version, name, ins, outs):
    body = {
        "inputs": [
            {"name": k, "datatype": d, "shape": list(a.shape),
             "data": [x.decode() for x in a.ravel()] if d == "BYTES" else a.ravel().tolist()}
            for k, (d, a) in ins.items()
        ]
    }  # fmt: skip
    answer = gw.json("POST", gw.infer_path(model, version), body).must()
    assert (answer["model_name"], answer["model_version"]) == (model, version)
    for o in answer["outputs"]:
        got = np.array(o["data"], np.float32).reshape(o["shape"])
        close(got, outs[o["name"]])
        record.numbers(got, o["name"])


@cases
def test_predict(gw, record, model, version, name, ins, outs):
    ((datatype, a),) = ins.values()
    tensor = b"".join(len(x).to_bytes(4, "little") + x for x in a.ravel()) if datatype == "BYTES" else a.tobytes()
    answer = gw.predict(model, tensor, version=int(version)).must()
    ((_, want),) = outs.items()
    got = np.frombuffer(answer.output_tensor, np.float32).reshape(want.shape)
    close(got, want)
    assert answer.status == "OK"
    assert answer.confidence == pytest.approx(want[0].max(), abs=1e-5)
    assert answer.latency_ms >= 1
    record.numbers(got)


def test_unpinned_calls_get_the_highest_version(gw):
    _, _, _, ins, outs = next(c for c in goldens.CASES if c[0] == "fraud" and c[1] == "2" and c[2] == "three rows")
    out = gw.infer(request("fraud", [("INPUT", "FP32", ins["INPUT"][1])]))
    assert out.must().model_version == "2"
    close(tensors(out.value)["SCORE"], outs["SCORE"])


def test_versions_differ(gw):
    x = np.ones((1, 16), np.float32)
    one, two = (tensors(gw.infer(request("fraud", [("INPUT", "FP32", x)], version=v)).must())["SCORE"] for v in "12")
    assert abs(one - two).max() > 1e-3


def test_contents_instead_of_raw_bytes(gw, record):
    r = request("fraud", [("INPUT", "FP32", np.ones((1, 16), np.float32))], version="1")
    want = tensors(gw.infer(r).must())["SCORE"]
    del r.raw_input_contents[:]
    r.inputs[0].contents.fp32_contents.extend([1.0] * 16)
    got = tensors(gw.infer(r).must())["SCORE"]
    close(got, want)
    record.numbers(got)


@pytest.mark.parametrize("mib", [1, 5, 8, 32])
def test_big_tensors_come_back_byte_for_byte(gw, mib):
    """O-01: beyond grpc's own default of 4 MiB."""
    x = np.random.default_rng(mib).random((1, mib << 18), np.float32)
    answer = gw.infer(request("echo", [("FP32", "FP32", x)], outputs=["FP32_OUT"])).must()
    assert answer.raw_output_contents[0] == x.tobytes()
    if mib <= 8:
        assert gw.predict("echo_fp32", x.tobytes()).must().output_tensor == x.tobytes()


def test_every_datatype_of_echo_comes_back(gw):
    ins = [
        ("FP16", "FP16", np.array([1.5, -2, 65504], np.float16)),
        ("INT64", "INT64", np.array([2**62, -(2**63)])),
        ("UINT8", "UINT8", np.arange(256, dtype=np.uint8)),
        ("BOOL", "BOOL", np.array([True, False])),
        ("BYTES", "BYTES", np.array([b"", b"\xff\xfe", "模型".encode()], object)),
    ]
    answer = gw.infer(request("echo", ins)).must()
    back = {o.name: b for o, b in zip(answer.outputs, answer.raw_output_contents)}
    for (name, _, _), blob in zip(ins, request("echo", ins).raw_input_contents):
        assert back[name + "_OUT"] == blob, name
    seen = json.loads(unraw("BYTES", [1], back["SEEN"])[0])
    assert seen["version"] == "1"


def test_only_the_outputs_asked_for_come(gw, record):
    x = [("FP32", "FP32", np.ones((1, 2), np.float32)), ("INT64", "INT64", np.array([1]))]
    answer = gw.infer(request("echo", x, outputs=["INT64_OUT"])).must()
    assert [o.name for o in answer.outputs] == ["INT64_OUT"]


def test_many_calls_at_once_are_batched_and_all_right(address):
    """64 rows by 64 calls under way together; Triton may batch them as it likes, each gets its own answer."""
    client = tg.InferenceServerClient(address)
    rows = np.random.default_rng(1).random((64, 16), np.float32)
    want = {}

    def call(i, done):
        t = tg.InferInput("INPUT", [1, 16], "FP32")
        t.set_data_from_numpy(rows[i : i + 1])
        client.async_infer("fraud", [t], lambda result, error: done(i, result, error), model_version="2", client_timeout=30)

    lock, finished, errors = threading.Lock(), threading.Event(), []

    def done(i, result, error):
        with lock:
            if error:
                errors.append(error)
            want[i] = None if error else result.as_numpy("SCORE")
            if len(want) == 64:
                finished.set()

    for i in range(64):
        call(i, done)
    assert finished.wait(30) and not errors, errors
    t = tg.InferInput("INPUT", [64, 16], "FP32")
    t.set_data_from_numpy(rows)
    together = client.infer("fraud", [t], model_version="2").as_numpy("SCORE")
    close(np.concatenate([want[i] for i in range(64)]), together)
    client.close()
