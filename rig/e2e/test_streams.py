"""ModelStreamInfer and PredictStream: order, several answers per request, sequences, errors inside a healthy stream."""

import asyncio
import json
import queue
import threading
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as tg
import tritonclient.grpc.aio as tgaio
from tritonclient.grpc import service_pb2 as pb

import calls
from calls import parameter, request, tensors

X = [("INPUT", "FP32", np.ones((1, 16), np.float32))]


def tokens(n, delay=None, fail_at=None, **kw):
    ins = [("N", "INT32", np.array([n], np.int32))]
    if delay is not None:
        ins.append(("DELAY_MS", "INT32", np.array([delay], np.int32)))
    if fail_at is not None:
        ins.append(("FAIL_AT", "INT32", np.array([fail_at], np.int32)))
    return request("tokens", ins, **kw)


def text(answer):
    return tensors(answer.infer_response)["TOKEN"][0].decode()


EMPTY_FINAL = {"triton_enable_empty_final_response": True}


@pytest.mark.parametrize("n", [0, 1, 3, 50])
def test_the_empty_final_answer_comes_when_asked_for(gw, n):
    """O-05."""
    answers = gw.infer_stream([tokens(n, params=EMPTY_FINAL, id="a")]).must()
    assert len(answers) == n + 1
    assert [text(a) for a in answers[:-1]] == [f"tok{i}" for i in range(n)]
    finals = [parameter(a.infer_response, "triton_final_response") for a in answers]
    assert finals == [False] * n + [True]
    assert not answers[-1].infer_response.outputs
    assert {a.infer_response.id for a in answers} == {"a"}


@pytest.mark.parametrize("n", [0, 1, 3])
def test_no_empty_final_answer_comes_unasked(gw, n):
    answers = gw.infer_stream([tokens(n)]).must()
    assert [text(a) for a in answers] == [f"tok{i}" for i in range(n)]


def test_answers_come_as_they_are_made(gw):
    """The first of five tokens, 150 ms apart, must not wait for the last."""
    call = gw.channel.stream_stream(
        calls.KSERVE + "ModelStreamInfer", request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=pb.ModelStreamInferResponse.FromString,
    )  # fmt: skip
    began = time.monotonic()
    times = [time.monotonic() - began for _ in call(iter([tokens(5, delay=150)]), timeout=20)]
    assert len(times) == 5 and times[-1] - times[0] > 0.45


def test_an_error_in_the_middle_ends_that_request_alone(gw, record):
    answers = gw.infer_stream([tokens(5, fail_at=2, id="bad"), tokens(2, id="good", delay=50)]).must()
    bad = [a for a in answers if a.infer_response.id == "bad"]
    good = [a for a in answers if a.infer_response.id == "good"]
    assert [text(a) for a in good] == ["tok0", "tok1"]
    assert [text(a) for a in bad[:2]] == ["tok0", "tok1"]
    assert len(bad) == 3 and "token 2 failed" in bad[2].error_message


def test_good_unknown_good_on_one_stream(gw, record):
    """O-06: three answers in order, the middle one an error that keeps its id."""
    requests = [request("fraud", X, id="1", version="1"), request("nope", X, id="2"), request("fraud", X, id="3", version="1")]
    answers = gw.infer_stream(requests).must()
    assert [a.infer_response.id for a in answers] == ["1", "2", "3"]
    assert [bool(a.error_message) for a in answers] == [False, True, False]
    assert "nope" in answers[1].error_message
    assert answers[0].infer_response.model_name == "fraud"
    assert parameter(answers[0].infer_response, "triton_final_response") is True


def test_bad_inputs_inside_a_stream_keep_it_alive(gw, record):
    bad = [
        request("fraud", X, id="version", version="abc"),
        request("fraud", [("INPUT", "FP32", np.ones((1, 3), np.float32))], id="shape"),
        request("seqsum", [("INPUT", "INT32", np.array([[1]], np.int32))], id="sequence", params={"sequence_id": 990201}),
        request("echo", [("FP32", "FP32", np.ones((1, 1), np.float32))], id="raise", params={"fail": "raise"}),
    ]
    answers = gw.infer_stream([*bad, request("fraud", X, id="good")]).must()
    by_id = {a.infer_response.id: a for a in answers}
    assert set(by_id) == {"version", "shape", "sequence", "raise", "good"}
    for name, a in by_id.items():
        assert bool(a.error_message) == (name != "good"), (name, a.error_message)
        assert ".py" not in a.error_message
    record.outcome(calls.Outcome("OK", None, str(sorted(k for k, a in by_id.items() if a.error_message))))


def test_answers_keep_the_order_of_requests(gw):
    """Models that answer once, of different speed, on one stream."""
    slow = request("echo", [("FP32", "FP32", np.ones((1, 1), np.float32))], id="0", params={"delay_ms": 300})
    answers = gw.infer_stream([slow, *(request("fraud", X, id=str(i), version="1") for i in range(1, 20))]).must()
    ids = [a.infer_response.id for a in answers]
    assert sorted(ids, key=int) == [str(i) for i in range(20)]
    fraud = [i for i in ids if i != "0"]
    assert fraud == sorted(fraud, key=int)


def test_equal_and_empty_ids_are_kept(gw):
    answers = gw.infer_stream([request("fraud", X, id=i, version="1") for i in ("same", "same", "", "")]).must()
    assert [a.infer_response.id for a in answers] == ["same", "same", "", ""]


def test_a_stream_of_nothing_is_ok(gw):
    assert gw.infer_stream([]).must() == []


@pytest.mark.parametrize("sequence", [770077, "s-77"])
def test_sequences_by_unary_calls(gw, record, sequence):
    """O-08, with one endpoint: numbers and texts name sequences."""
    sums = []
    for i in range(1, 11):
        params = {"sequence_id": sequence, "sequence_start": i == 1, "sequence_end": i == 10}
        r = request("seqsum", [("INPUT", "INT32", np.array([[i]], np.int32))], params=params)
        sums.append(int(tensors(gw.infer(r).must())["SUM"][0, 0]))
    assert sums == [1, 3, 6, 10, 15, 21, 28, 36, 45, 55]
    record.numbers(sums)


def test_sequences_by_one_stream_do_not_mix(gw):
    requests = []
    for i in range(1, 6):
        for name, sign in (("plus", 1), ("minus", -1)):
            params = {"sequence_id": f"mix-{name}", "sequence_start": i == 1, "sequence_end": i == 5}
            requests.append(request("seqsum", [("INPUT", "INT32", np.array([[sign * i]], np.int32))], params=params, id=f"{name}{i}"))
    answers = {a.infer_response.id: int(tensors(a.infer_response)["SUM"][0, 0]) for a in gw.infer_stream(requests).must()}
    assert [answers[f"plus{i}"] for i in range(1, 6)] == [1, 3, 6, 10, 15]
    assert [answers[f"minus{i}"] for i in range(1, 6)] == [-1, -3, -6, -10, -15]


def test_tritonclient_streams(address):
    """Their own client: a sequence, then tokens, on one stream."""
    got = queue.Queue()
    client = tg.InferenceServerClient(address)
    client.start_stream(lambda result, error: got.put((result, error)))
    for i in (1, 2, 3):
        t = tg.InferInput("INPUT", [1, 1], "INT32")
        t.set_data_from_numpy(np.array([[i]], np.int32))
        client.async_stream_infer("seqsum", [t], sequence_id=660066, sequence_start=i == 1, sequence_end=i == 3)
    sums = []
    for _ in range(3):
        result, error = got.get(timeout=20)
        assert error is None
        sums.append(int(result.as_numpy("SUM")[0, 0]))
    assert sums == [1, 3, 6]
    n = tg.InferInput("N", [1], "INT32")
    n.set_data_from_numpy(np.array([4], np.int32))
    client.async_stream_infer("tokens", [n], enable_empty_final_response=True)
    seen = []
    while True:
        result, error = got.get(timeout=20)
        assert error is None
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
        seen.append(result.as_numpy("TOKEN")[0].decode())
    assert seen == ["tok0", "tok1", "tok2", "tok3"]
    client.stop_stream()
    client.close()


def test_tritonclient_aio(address):
    async def run():
        async with tgaio.InferenceServerClient(address) as client:
            assert await client.is_server_live() and await client.is_model_ready("fraud")
            t = tgaio.InferInput("INPUT", [2, 16], "FP32")
            t.set_data_from_numpy(np.ones((2, 16), np.float32))
            answers = await asyncio.gather(*(client.infer("fraud", [t], model_version="1") for _ in range(20)))
            assert len({a.as_numpy("SCORE").tobytes() for a in answers}) == 1

            async def ask():
                n = tgaio.InferInput("N", [1], "INT32")
                n.set_data_from_numpy(np.array([3], np.int32))
                yield {"model_name": "tokens", "inputs": [n]}

            return [r.as_numpy("TOKEN")[0] async for r, e in client.stream_infer(ask())]

    assert asyncio.run(asyncio.wait_for(run(), 30)) == [b"tok0", b"tok1", b"tok2"]


def tokens_tensor(*values):
    """The flat tensor of tokens is N alone, since what is optional is left out; of the alias, its three inputs in a row."""
    return np.array(values, np.int32).tobytes()


def token_of(answer):
    n = int.from_bytes(answer.output_tensor[:4], "little")
    assert len(answer.output_tensor) == 4 + n
    return answer.output_tensor[4:].decode()


def test_predict_stream_answers_each_request_in_order(gw, predict_pb2, record):
    rows = np.random.default_rng(5).random((40, 16), np.float32)
    requests = [predict_pb2.PredictionRequest(model_name="fraud", model_version=1 + i % 2, input_tensor=r.tobytes()) for i, r in enumerate(rows)]
    answers = gw.predict_stream(requests).must()
    assert [a.status for a in answers] == ["OK"] * 40
    got = np.array([np.frombuffer(a.output_tensor, np.float32)[0] for a in answers])
    for version in (1, 2):
        want = tensors(gw.infer(request("fraud", [("INPUT", "FP32", rows)], version=str(version))).must())["SCORE"][:, 0]
        np.testing.assert_allclose(got[version - 1 :: 2], want[version - 1 :: 2], atol=1e-5)
    record.numbers(got)


def test_predict_stream_gives_every_token(gw, predict_pb2):
    requests = [
        predict_pb2.PredictionRequest(model_name="tokens", input_tensor=tokens_tensor(3)),
        predict_pb2.PredictionRequest(model_name="fraud", model_version=1, input_tensor=np.ones(16, np.float32).tobytes()),
        predict_pb2.PredictionRequest(model_name="tokens", input_tensor=tokens_tensor(2)),
    ]
    answers = gw.predict_stream(requests).must()
    assert [a.status for a in answers] == ["OK"] * 6
    assert [token_of(a) for a in answers[:3]] == ["tok0", "tok1", "tok2"]
    assert len(answers[3].output_tensor) == 4
    assert [token_of(a) for a in answers[4:]] == ["tok0", "tok1"]


def test_predict_stream_lives_on_after_errors(gw, predict_pb2, record):
    P, one = predict_pb2.PredictionRequest, np.ones(16, np.float32).tobytes()
    bad = {
        "MODEL_NOT_FOUND": P(model_name="nope", input_tensor=one),
        "CONTRACT_VIOLATION": P(model_name="fraud", input_tensor=one[:-1]),
        "INVALID_VERSION": P(model_name="fraud", model_version=-1, input_tensor=one),
        "INVALID_ARGUMENT": P(model_name="fraud", input_tensor=one * 65),
    }
    requests = []
    for r in bad.values():
        requests += [r, P(model_name="fraud", model_version=1, input_tensor=one)]
    answers = gw.predict_stream(requests).must()
    assert len(answers) == len(requests)
    for reason, a in zip(bad, answers[::2]):
        assert a.status.startswith(f"ERROR: {reason}"), a.status
        assert not a.output_tensor
    assert [a.status for a in answers[1::2]] == ["OK"] * 4
    record.outcome(calls.Outcome("OK", None, " ".join(a.status.split(": ")[1] for a in answers[::2])))


def test_predict_stream_tells_of_an_error_between_tokens(aliased, predict_pb2):
    """By an alias whose configuration declares all three inputs."""
    request = predict_pb2.PredictionRequest(model_name="slow-tokens", input_tensor=tokens_tensor(5, 20, 2))
    answers = aliased.predict_stream([request]).must()
    assert [a.status.split(":")[0] for a in answers] == ["OK", "OK", "ERROR"]
    assert "UPSTREAM_FAILED" in answers[-1].status


def test_predict_of_a_single_token_is_fine(gw):
    """A unary Predict on a model of many answers: its single answer."""
    assert token_of(gw.predict("tokens", tokens_tensor(1)).must()) == "tok0"


def test_a_cancelled_stream_stops_the_model(gw):
    """O-07: the echo model counts requests that were given up while they ran."""

    def cancelled():
        r = request("echo", [("FP32", "FP32", np.ones((1, 1), np.float32))])
        return json.loads(tensors(gw.infer(r).must())["SEEN"][0])["cancelled"]

    before = cancelled()
    slow = request("echo", [("FP32", "FP32", np.ones((1, 1), np.float32))], params={"delay_ms": 10_000})
    for method, reply in (("ModelInfer", pb.ModelInferResponse), ("ModelStreamInfer", pb.ModelStreamInferResponse)):
        path, parse = calls.KSERVE + method, reply.FromString
        if method == "ModelInfer":
            running = gw.channel.unary_unary(path, lambda m: m.SerializeToString(), parse).future(slow, timeout=20)
        else:
            held = threading.Event()

            def keep_open(message=slow, held=held):
                yield message
                held.wait(20)

            running = gw.channel.stream_stream(path, lambda m: m.SerializeToString(), parse)(keep_open(), timeout=20)
        time.sleep(0.5)
        running.cancel()
        assert running.code() == grpc.StatusCode.CANCELLED
        if method == "ModelStreamInfer":
            held.set()
        began = time.monotonic()
        before += 1
        # The model is one process that works off one request after the other: an answer means that it gave the slow one up.
        assert cancelled() == before
        assert time.monotonic() - began < 2
