"""The table of bad inputs: what is sent, and the one right answer. A row is (name, call, code, reason).

call takes a calls.Client and gives an Outcome. V2 are rows of Triton's own gRPC service, which a bare Triton answers too
(rig/direct.py compares those); PREDICT and HTTP need a gateway.
"""

import json

import numpy as np
from google.rpc import status_pb2  # noqa: F401  (registers google.rpc for Any)
from tritonclient.grpc import service_pb2 as pb

import calls
from calls import request

ONE = np.ones((1, 16), np.float32)
X = [("INPUT", "FP32", ONE)]


def v2(model="fraud", ins=X, change=None, **kw):
    """A ModelInfer; change edits the finished request."""

    def call(gw):
        r = request(model, ins, **kw)
        if change:
            change(r)
        return gw.infer(r)

    return call


def edit(**fields):
    def change(r):
        for k, v in fields.items():
            setattr(r, k, v)

    return change


def short_raw(r):
    r.raw_input_contents[0] = b"1234"


def long_raw(r):
    r.raw_input_contents[0] += b"1234"


def both(r):
    r.inputs[0].contents.fp32_contents.extend([1.0] * 16)


def few_contents(r):
    del r.raw_input_contents[:]
    r.inputs[0].contents.fp32_contents.extend([1.0] * 15)


def wrong_contents(r):
    del r.raw_input_contents[:]
    r.inputs[0].contents.int_contents.extend([1] * 16)


def no_bytes(r):
    del r.raw_input_contents[:]


def shape(*dims):
    def change(r):
        r.inputs[0].shape[:] = dims

    return change


def uint64(r):
    r.parameters["u"].uint64_param = 1


def empty_parameter(r):
    r.parameters["nothing"].SetInParent()


def unknown_region(r):
    del r.raw_input_contents[:]
    r.inputs[0].parameters["shared_memory_region"].string_param = "nowhere"
    r.inputs[0].parameters["shared_memory_byte_size"].int64_param = 64


def infer_bytes(blob):
    return lambda gw: gw.unary(calls.KSERVE + "ModelInfer", blob)


GOOD = request("fraud", X).SerializeToString()
MISSING, BAD, VERSION = "NOT_FOUND", "INVALID_ARGUMENT", "INVALID_VERSION"
N3 = [("N", "INT32", np.array([3], np.int32))]
SUM = [("INPUT", "INT32", np.array([[1]], np.int32))]
DATA = [("FP32", "FP32", np.ones((1, 2), np.float32))]

V2 = [
    ("unknown model", v2("nope"), MISSING, "MODEL_NOT_FOUND"),
    ("no model name", v2(""), BAD, BAD),
    ("name in other case", v2("Fraud"), MISSING, "MODEL_NOT_FOUND"),
    ("name with a path", v2("../fraud"), MISSING, "MODEL_NOT_FOUND"),
    ("version that is not there", v2(version="9"), MISSING, "MODEL_NOT_FOUND"),
    ("version of letters", v2(version="abc"), BAD, VERSION),
    ("version latest", v2(version="latest"), BAD, VERSION),
    ("version -1", v2(version="-1"), BAD, VERSION),
    ("version beyond 64 bits", v2(version="99999999999999999999"), BAD, VERSION),
    ("row too short", v2(ins=[("INPUT", "FP32", np.ones((1, 15), np.float32))]), BAD, BAD),
    ("no batch dimension", v2(ins=[("INPUT", "FP32", np.ones(16, np.float32))]), BAD, BAD),
    ("one dimension more", v2(ins=[("INPUT", "FP32", np.ones((1, 1, 16), np.float32))]), BAD, BAD),
    ("other datatype", v2(ins=[("INPUT", "INT32", np.ones((1, 16), np.int32))]), BAD, BAD),
    ("no such datatype", v2(change=lambda r: edit(datatype="FP33")(r.inputs[0])), BAD, BAD),
    ("batch too large", v2(ins=[("INPUT", "FP32", np.ones((65, 16), np.float32))]), BAD, BAD),
    ("missing input", v2(ins=[]), BAD, BAD),
    ("misnamed input", v2(ins=[("X", "FP32", ONE)]), BAD, BAD),
    ("extra input", v2(ins=[*X, ("X", "FP32", ONE)]), BAD, BAD),
    ("input given twice", v2(ins=[*X, *X]), BAD, BAD),
    ("unknown output", v2(outputs=["NOPE"]), BAD, BAD),
    ("too few bytes", v2(change=short_raw), BAD, BAD),
    ("too many bytes", v2(change=long_raw), BAD, BAD),
    ("raw contents and contents", v2(change=both), BAD, BAD),
    ("too few contents", v2(change=few_contents), BAD, BAD),
    ("contents of another type", v2(change=wrong_contents), BAD, BAD),
    ("no contents at all", v2(change=no_bytes), BAD, BAD),
    ("negative dimension", v2(change=shape(-1, 16)), BAD, BAD),
    ("shape that overflows", v2(change=shape(1 << 40, 1 << 40)), BAD, BAD),
    ("BYTES with a broken length", v2("text", [("TEXT", "BYTES", (b"\xff\x00\x00\x00ab", [1, 1]))]), BAD, BAD),
    ("BYTES with too many elements", v2("text", [("TEXT", "BYTES", np.array([["a", "b"]], object))]), BAD, BAD),
    ("reserved parameter", v2(params={"triton_secret": "1"}), BAD, BAD),
    ("timeout that is text", v2(params={"timeout": "soon"}), BAD, BAD),
    ("unsigned parameter", v2(change=uint64), BAD, BAD),
    ("parameter without a value", v2(change=empty_parameter), BAD, BAD),
    ("several answers by a unary call", v2("tokens", N3), "UNIMPLEMENTED", "NOT_SERVED"),
    ("sequence that was not started", v2("seqsum", SUM, params={"sequence_id": 990099}), BAD, BAD),
    ("sequence model without a sequence", v2("seqsum", SUM), BAD, BAD),
    ("sequence with a batch of two",
     v2("seqsum", [("INPUT", "INT32", np.ones((2, 1), np.int32))], params={"sequence_id": 990100, "sequence_start": True}), BAD, BAD),
    ("bytes that are no message", infer_bytes(b"\xff\xff\xff"), BAD, BAD),
    ("a message cut short", infer_bytes(GOOD[:-7]), BAD, BAD),
    ("an empty message", infer_bytes(b""), BAD, BAD),
    ("a name that is not UTF-8", infer_bytes(b"\x0a\x02\xff\xfe"), BAD, BAD),
    ("unknown shared memory region", v2(change=unknown_region), MISSING, BAD),
    ("a method that does not exist", lambda gw: gw.unary(calls.KSERVE + "ModelGuess", b""), "UNIMPLEMENTED", None),
    ("the model throws", v2("echo", DATA, params={"fail": "raise"}), "INTERNAL", "UPSTREAM_FAILED"),
    ("the model says INTERNAL", v2("echo", DATA, params={"fail": "INTERNAL"}), "INTERNAL", "UPSTREAM_FAILED"),
    ("the model says INVALID_ARG", v2("echo", DATA, params={"fail": "INVALID_ARG"}), BAD, BAD),
    ("metadata of an unknown model", lambda gw: gw.ask("ModelMetadata", pb.ModelMetadataRequest(name="nope")), MISSING, "MODEL_NOT_FOUND"),
    ("metadata of an unknown version", lambda gw: gw.ask("ModelMetadata", pb.ModelMetadataRequest(name="fraud", version="9")), MISSING, "MODEL_NOT_FOUND"),
    ("config of an unknown model", lambda gw: gw.ask("ModelConfig", pb.ModelConfigRequest(name="nope")), MISSING, "MODEL_NOT_FOUND"),
    ("readiness of version abc", lambda gw: gw.ask("ModelReady", pb.ModelReadyRequest(name="fraud", version="abc")), BAD, VERSION),
]  # fmt: skip

BIG = 65 << 20


def too_large(gw):
    return gw.infer(request("echo", [("UINT8", "UINT8", (bytes(BIG), [BIG]))]))


def predict(model="fraud", tensor=ONE.tobytes(), **kw):
    return lambda gw: gw.predict(model, tensor, **kw)


VIOLATED = "CONTRACT_VIOLATION"

PREDICT = [
    ("unknown model", predict("nope"), MISSING, "MODEL_NOT_FOUND"),
    ("no model name", predict(""), BAD, BAD),
    ("version that is not there", predict(version=9), MISSING, "MODEL_NOT_FOUND"),
    ("negative version", predict(version=-1), BAD, VERSION),
    ("length that does not divide", predict(tensor=ONE.tobytes()[:-1]), BAD, VIOLATED),
    ("one byte", predict(tensor=b"1"), BAD, VIOLATED),
    ("no tensor", predict(tensor=b""), BAD, VIOLATED),
    ("cnn with fraud's tensor", predict("cnn"), BAD, VIOLATED),
    ("batch too large", predict(tensor=ONE.tobytes() * 65), BAD, BAD),
    ("text with a broken length", predict("text", b"\xff\x00\x00\x00ab"), BAD, VIOLATED),
    ("text with half a length", predict("text", b"\x01\x00"), BAD, VIOLATED),
    ("several answers by a unary call", predict("tokens", np.array([3], np.int32).tobytes()), "FAILED_PRECONDITION", "USE_STREAM"),
    ("bytes that are no message", lambda gw: gw.unary(calls.PREDICT + "Predict", b"\xff\xff\xff"), BAD, BAD),
    ("a name that is not UTF-8", lambda gw: gw.unary(calls.PREDICT + "Predict", b"\x0a\x02\xff\xfe"), BAD, BAD),
    ("a method that does not exist", lambda gw: gw.unary(calls.PREDICT + "Guess", b""), "UNIMPLEMENTED", None),
    # gRPC's own library refuses these before we see them, in words that name the cap, and has no reason to give.
    ("too large", predict("echo_fp32", bytes(BIG)), "RESOURCE_EXHAUSTED", None),
    ("too large for ModelInfer", too_large, "RESOURCE_EXHAUSTED", None),
]  # fmt: skip


def post(model="fraud", body=None, version="", headers=None, **tensor):
    """An infer request as JSON; tensor's fields override those of a good input of fraud."""
    if body is None:
        body = {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 16], "data": [1.0] * 16, **tensor}]}
    return lambda gw: gw.http("POST", gw.infer_path(model, version), body, headers=headers)


def echo(**tensor):
    return post("echo", {"inputs": [{"name": "FP32", "datatype": "FP32", "shape": [1, 2], "data": [1, 2], **tensor}]})


def v1(body, headers=None):
    return lambda gw: gw.http("POST", "/v1/predict", body, headers=headers)


JSON = json.dumps({"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 16], "data": [1.0] * 16}]}).encode()
HEAD = json.dumps(
    {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}]}
).encode()


def binary(head_length, blob=bytes(64), head=HEAD):
    return post(body=head + blob, headers={"Inference-Header-Content-Length": str(head_length)})


HTTP = [
    ("unknown model", post("nope"), 404, "MODEL_NOT_FOUND"),
    ("version that is not there", post(version="9"), 404, "MODEL_NOT_FOUND"),
    ("version of letters", post(version="abc"), 400, VERSION),
    ("text that is no JSON", post(body=b"{not json"), 400, BAD),
    ("nothing", post(body=b""), 400, BAD),
    ("JSON that is a list", post(body=b"[]"), 400, BAD),
    ("text after the closing brace", post(body=JSON + b" x"), 400, BAD),
    ("JSON twice", post(body=JSON + JSON), 400, BAD),
    ("no inputs", post(body={}), 400, VIOLATED),
    ("more data than the shape holds", echo(data=[1, 2, 3]), 400, VIOLATED),
    ("less data than the shape holds", echo(data=[1]), 400, VIOLATED),
    ("negative dimension", echo(shape=[-1, 2]), 400, VIOLATED),
    ("null among numbers", echo(data=[1, None]), 400, VIOLATED),
    ("text among numbers", echo(data=[1, "7"]), 400, VIOLATED),
    ("number beyond FP32", echo(data=[1, 1e300]), 400, VIOLATED),
    ("number where text belongs", post("text", {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [7]}]}), 400, VIOLATED),
    ("fraction in an INT64", post("echo", {"inputs": [{"name": "INT64", "datatype": "INT64", "shape": [1], "data": [1.5]}]}), 400, VIOLATED),
    ("INT64 that overflows", post("echo", {"inputs": [{"name": "INT64", "datatype": "INT64", "shape": [1], "data": [9223372036854775808]}]}), 400, VIOLATED),
    ("FP16 as JSON", post("echo", {"inputs": [{"name": "FP16", "datatype": "FP16", "shape": [1], "data": [1.0]}]}), 400, VIOLATED),
    ("other datatype", post(datatype="INT32", data=[1] * 16), 400, BAD),
    ("no such datatype", post(datatype="FP33"), 400, VIOLATED),
    ("row too short", post(shape=[1, 15], data=[1.0] * 15), 400, BAD),
    ("head longer than the body", binary(len(HEAD) + 65), 400, BAD),
    ("head that is no number", binary("x"), 400, BAD),
    ("negative head", binary(-1), 400, BAD),
    ("head cut short", binary(len(HEAD) - 1), 400, BAD),
    ("tail shorter than it says", binary(len(HEAD), bytes(63)), 400, VIOLATED),
    ("tail longer than it says", binary(len(HEAD), bytes(65)), 400, VIOLATED),
    ("gzip that is none", post(body=JSON, headers={"Content-Encoding": "gzip"}), 400, BAD),
    ("unknown encoding", post(body=JSON, headers={"Content-Encoding": "br"}), 400, BAD),
    ("too large", post("echo", body=bytes(BIG)), 413, "TOO_LARGE"),
    ("several answers by one call", post("tokens", {"inputs": [{"name": "N", "datatype": "INT32", "shape": [1], "data": [3]}]}), 501, "NOT_SERVED"),
    ("the model throws", post("echo", {"parameters": {"fail": "raise"}, "inputs": [{"name": "FP32", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}), 500, "UPSTREAM_FAILED"),
    ("v1: unknown model", v1({"model_name": "nope", "input_tensor": "AAAA"}), 404, "MODEL_NOT_FOUND"),
    ("v1: no JSON", v1(b"{"), 400, BAD),
    ("v1: unknown field", v1({"model_name": "fraud", "tensor": "AAAA"}), 400, BAD),
    ("v1: no base64", v1({"model_name": "fraud", "input_tensor": "%%%"}), 400, BAD),
    ("v1: length that does not divide", v1({"model_name": "fraud", "input_tensor": "AAAA"}), 400, VIOLATED),
    ("v1: version of letters", v1({"model_name": "fraud", "model_version": "abc", "input_tensor": "AAAA"}), 400, BAD),
    ("v1: negative version", v1({"model_name": "fraud", "model_version": -1, "input_tensor": "AAAA"}), 400, VERSION),
    ("v1: several answers by one call", v1({"model_name": "tokens", "input_tensor": "AwAAAA=="}), 400, "USE_STREAM"),
    ("v1: GET", lambda gw: gw.http("GET", "/v1/predict"), 405, None),
    ("a path that does not exist", lambda gw: gw.http("GET", "/v2/nope"), 404, None),
    ("metadata of an unknown model", lambda gw: gw.http("GET", "/v2/models/nope"), 404, "MODEL_NOT_FOUND"),
]  # fmt: skip
