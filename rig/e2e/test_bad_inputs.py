"""Every bad input of the table has its one right answer, says what to do, tells no secrets, and harms nobody else."""

import re

import numpy as np
import pytest

import bad_inputs
from calls import request


def table(rows):
    return pytest.mark.parametrize(("name", "call", "code", "reason"), rows, ids=[r[0].replace(" ", "_") for r in rows])


def judge(out, record, code, reason):
    record.outcome(out)
    assert (out.code, out.reason) == (code, reason or out.reason), out.message
    assert out.message, "an error must say what is wrong"
    assert len(out.message) < 1500
    assert not re.search(r"\.py\b|\.go:\d|Traceback|/opt/|/usr/|site-packages", out.message), f"inner workings shown: {out.message}"


@table(bad_inputs.V2)
def test_v2(gw, record, name, call, code, reason):
    judge(call(gw), record, code, reason)


@table(bad_inputs.PREDICT)
def test_predict(gw, record, name, call, code, reason):
    judge(call(gw), record, code, reason)


@table(bad_inputs.HTTP)
def test_http(gw, record, name, call, code, reason):
    judge(call(gw), record, code, reason)


def test_too_large_names_the_cap(gw):
    assert "67108864" in bad_inputs.too_large(gw).message


def test_a_batch_of_no_rows_is_no_error_of_the_gateway(gw, record):
    """Triton lets a batch of 0 rows through to the model; whatever that makes of it comes back."""
    out = gw.infer(request("fraud", [("INPUT", "FP32", np.ones((0, 16), np.float32))]))
    assert out.code in ("OK", "INVALID_ARGUMENT")


def test_version_0_and_none_are_the_default(gw, predict_pb2):
    """O-15."""
    x = [("INPUT", "FP32", np.ones((1, 16), np.float32))]
    assert gw.infer(request("fraud", x, version="")).must().model_version == "2"
    assert gw.predict("fraud", np.ones(16, np.float32).tobytes(), version=0).must().status == "OK"


def test_version_zero_as_text(gw, record):
    """O-15: the text "0" is no version, so it means none."""
    out = gw.infer(request("fraud", bad_inputs.X, version="0"))
    record.outcome(out)
    assert out.must().model_version == "2"


def test_a_second_model_name_cannot_be_smuggled(gw):
    """Of a field given twice the last counts, for the gateway's choice as for Triton's."""
    x = request("fraud", bad_inputs.X, version="1").SerializeToString()
    nope = request("nope").SerializeToString()
    assert gw.infer(nope + x).must().model_name == "fraud"
    assert gw.infer(x + nope).code == "NOT_FOUND"


def test_good_calls_work_between_bad_ones(gw):
    for _, call, _, _ in bad_inputs.V2[::5]:
        call(gw)
        gw.infer(request("fraud", bad_inputs.X)).must()
