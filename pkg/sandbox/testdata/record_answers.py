"""Records what a real Triton answers to good and bad requests, for the tests of package sandbox.

    python record_answers.py HOST:PORT > answers.json

The server must have been started just now, with --model-control-mode=explicit --load-model='*' on a copy of triton-models/.
Needs tritonclient[grpc] and numpy. Recorded from 2.51.0. Messages are cut at the first line: what follows names files.
"""

import base64
import json
import sys
import time

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

SERVICE = "/inference.GRPCInferenceService/"
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
CHANNEL = grpc.insecure_channel(sys.argv[1], options=UNLIMITED)
SAME = {"request_serializer": lambda b: b, "response_deserializer": lambda b: b}
STEPS = []


def b64(b):
    return base64.b64encode(b).decode()


def call(name, method, request, response=True):
    """One unary call. Without response only code and message are kept."""
    raw = request if isinstance(request, bytes) else request.SerializeToString()
    step = {"name": name, "method": method, "request": b64(raw)}
    try:
        got = CHANNEL.unary_unary(SERVICE + method, **SAME)(raw, timeout=20)
        step["code"] = "OK"
        if response:
            step["response"] = b64(got)
    except grpc.RpcError as e:
        step["code"], step["message"] = e.code().name, e.details().split("\n")[0]
    STEPS.append(step)


def stream(name, *requests):
    raw = [r if isinstance(r, bytes) else r.SerializeToString() for r in requests]
    step = {"name": name, "method": "ModelStreamInfer", "requests": [b64(r) for r in raw], "code": "OK", "responses": []}
    try:
        for got in CHANNEL.stream_stream(SERVICE + "ModelStreamInfer", **SAME)(iter(raw), timeout=20):
            answer = pb.ModelStreamInferResponse.FromString(got)
            answer.error_message = answer.error_message.split("\n")[0]
            step["responses"].append(b64(answer.SerializeToString()))
    except grpc.RpcError as e:
        step["code"], step["message"] = e.code().name, e.details().split("\n")[0]
    STEPS.append(step)


def settle(model):
    """Waits until the model is neither being loaded nor unloaded; whoever replays must do the same."""
    method = CHANNEL.unary_unary(SERVICE + "RepositoryIndex", **SAME)
    while True:
        index = pb.RepositoryIndexResponse.FromString(method(b"", timeout=20))
        if not any(m.name == model and m.state in ("LOADING", "UNLOADING") for m in index.models):
            break
        time.sleep(0.05)
    STEPS.append({"name": "settle", "settle": model})


TYPES = {np.float32: "FP32", np.int32: "INT32", np.uint8: "UINT8", np.int64: "INT64", np.float16: "FP16", np.bool_: "BOOL"}


def ask(model, *inputs, version="", id="", outs=(), **parameters):
    """A request with raw inputs: (name, array), or (name, datatype, shape, bytes)."""
    r = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name, *rest in inputs:
        if len(rest) == 1 and rest[0].dtype == object:
            a = rest[0]
            rest = ["BYTES", a.shape, b"".join(len(x).to_bytes(4, "little") + x for x in a.ravel())]
        elif len(rest) == 1:
            rest = [TYPES[rest[0].dtype.type], rest[0].shape, rest[0].tobytes()]
        r.inputs.add(name=name, datatype=rest[0], shape=rest[1])
        r.raw_input_contents.append(rest[2])
    for o in outs:
        r.outputs.add(name=o)
    for k, v in parameters.items():
        put(r.parameters[k], v)
    return r


def put(p, v):
    if isinstance(v, bool):
        p.bool_param = v
    elif isinstance(v, int):
        p.int64_param = v
    elif isinstance(v, float):
        p.double_param = v
    elif isinstance(v, bytes):
        p.bytes_param = v
    else:
        p.string_param = v


def with_contents(r, **contents):
    del r.raw_input_contents[:]
    r.inputs[0].contents.SetInParent()
    for field, values in contents.items():
        getattr(r.inputs[0].contents, field).extend(values)
    return r


def changed(r, f):
    f(r)
    return r


def rows(*shape):
    return ("INPUT", np.ones(shape, np.float32))


def number(name, v):
    return (name, np.array([v], np.int32))


def text(*rows):
    return ("TEXT", np.array([[r] for r in rows], dtype=object))


OK = rows(1, 16)


def versions():
    for v in ("", "1", "2", "-1", "0", "9", "latest", "abc", "9223372036854775808", " 1", "1 ", "1abc", "+1", "01", "1.5", "-"):
        call(f"version {v!r}", "ModelInfer", ask("fraud", OK, version=v))
        call(f"ready version {v!r}", "ModelReady", pb.ModelReadyRequest(name="fraud", version=v))
    for name, version in (("nope", ""), ("nope", "1"), ("nope", "abc"), ("", "")):
        call(f"unknown model {name!r} {version!r}", "ModelInfer", ask(name, OK, version=version))
        call(f"ready {name!r} {version!r}", "ModelReady", pb.ModelReadyRequest(name=name, version=version))


def inputs():
    def infer(name, r):
        call(name, "ModelInfer", r)

    infer("id comes back", ask("fraud", OK, id="abc-1"))
    infer("shape", ask("fraud", rows(1, 15)))
    infer("rank", ask("fraud", rows(16)))
    infer("dtype", ask("fraud", ("INPUT", np.ones((1, 16), np.int32))))
    for bogus in ("FP33", "", "fp32"):
        infer(f"dtype {bogus!r}", ask("fraud", ("INPUT", bogus, [1, 16], bytes(64))))
    infer("batch 65", ask("fraud", rows(65, 16)))
    infer("batch 64", ask("fraud", rows(64, 16)))
    infer("batch 0", ask("fraud", rows(0, 16)))
    infer("negative batch", ask("fraud", ("INPUT", "FP32", [-1, 16], bytes(64))))
    infer("huge dimension", ask("fraud", ("INPUT", "FP32", [1, 1 << 62], bytes(64))))
    infer("no shape", ask("fraud", ("INPUT", "FP32", [], bytes(64))))
    infer("no inputs", ask("fraud", id="r7"))
    infer("wrong name", ask("fraud", ("X", np.ones((1, 16), np.float32))))
    infer("one too many", ask("fraud", OK, ("X", np.ones((1, 16), np.float32)), id="r1"))
    infer("the same twice", ask("fraud", OK, OK))
    infer("wrong output", ask("fraud", OK, outs=["NOPE"]))
    infer("output twice", ask("fraud", OK, outs=["SCORE", "SCORE"]))
    infer("raw bytes short", ask("fraud", ("INPUT", "FP32", [1, 16], b"1234"), id="r2"))
    infer("raw bytes missing", changed(ask("fraud", OK), lambda r: r.ClearField("raw_input_contents")))
    infer("raw bytes of one of two", changed(ask("fraud", OK, rows(1, 16)), lambda r: (setattr(r.inputs[1], "name", "X"), r.raw_input_contents.pop())))
    infer("raw bytes too many", changed(ask("fraud", ("INPUT", "FP32", [1, 16], bytes(64))), lambda r: r.raw_input_contents.append(b"x")))
    infer("contents", with_contents(ask("fraud", OK), fp32_contents=[1] * 16))
    infer("contents short", with_contents(ask("fraud", OK), fp32_contents=[1] * 15))
    infer("contents empty", with_contents(ask("fraud", OK)))
    infer("contents of another type", with_contents(ask("fraud", OK), int_contents=[1] * 16))
    infer("contents of two types", with_contents(ask("fraud", OK), fp32_contents=[1] * 16, int_contents=[1] * 16))
    infer("contents of a bogus type", with_contents(ask("fraud", ("INPUT", "ZZ", [1, 16], b"")), fp32_contents=[1] * 16))
    infer("raw and contents", changed(ask("fraud", OK), lambda r: r.inputs[0].contents.fp32_contents.extend([1] * 16)))
    infer("raw and empty contents", changed(ask("fraud", OK), lambda r: r.inputs[0].contents.SetInParent()))
    infer("contents INT32", with_contents(ask("seqsum", ("INPUT", np.ones((1, 1), np.int32)), sequence_id=900, sequence_start=True, sequence_end=True), int_contents=[7]))
    infer("contents BYTES", with_contents(ask("text", text(b"x")), bytes_contents=[b"cheap pills"]))
    infer("text", ask("text", text(b"hello world, CHEAP pills!", b"", "naïve 100%".encode())))
    infer("text cut short", ask("text", ("TEXT", "BYTES", [1, 1], b"\5\0\0\0a"), id="q"))
    infer("text length cut short", ask("text", ("TEXT", "BYTES", [1, 1], b"\1\0\0\0a\5\0"), id="q"))
    infer("text only a bit of a length", ask("text", ("TEXT", "BYTES", [1, 1], b"\5\0"), id="q"))
    infer("text of 4 GiB", ask("text", ("TEXT", "BYTES", [1, 1], b"\xff\xff\xff\xffabc")))
    infer("three texts for one", ask("text", ("TEXT", "BYTES", [1, 1], b"\1\0\0\0a" * 3), id="q"))
    infer("one text for two", ask("text", ("TEXT", "BYTES", [2, 1], b"\1\0\0\0a")))
    infer("no text at all", ask("text", ("TEXT", "BYTES", [1, 1], b"")))
    infer("garbage", b"\xff\xff\xff")
    infer("an empty message", b"")


def parameters():
    def infer(name, **p):
        call(name, "ModelInfer", ask("fraud", OK, **p))

    for k, v in (
        ("triton_x", 1), ("triton_final_response", True), ("triton_enable_empty_final_response", True), ("triton_enable_empty_final_response", "x"),
        ("timeout", "5"), ("timeout", 500000), ("timeout", -5), ("timeout", True), ("priority", "1"), ("priority", 1), ("priority", -1), ("priority", True),
        ("sequence_id", "a"), ("sequence_id", 5), ("sequence_id", True), ("sequence_id", 1.5), ("sequence_start", True), ("sequence_start", 1),
        ("sequence_end", "x"), ("foo", 1.5), ("foo", "x"), ("foo", True), ("foo", 7),
    ):  # fmt: skip
        infer(f"parameter {k}={v!r}", **{k: v})

    def own(name, f):
        call(name, "ModelInfer", changed(ask("fraud", OK, outs=["SCORE"]), f))

    own("uint64 parameter", lambda r: setattr(r.parameters["u"], "uint64_param", 3))
    own("unset parameter", lambda r: r.parameters["u"].SetInParent())
    own("uint64 priority", lambda r: setattr(r.parameters["priority"], "uint64_param", 3))
    own("uint64 sequence", lambda r: setattr(r.parameters["sequence_id"], "uint64_param", 3))
    own("input parameter", lambda r: setattr(r.inputs[0].parameters["foo"], "int64_param", 3))
    own("unknown region", lambda r: (put(r.inputs[0].parameters["shared_memory_region"], "nope"), put(r.inputs[0].parameters["shared_memory_byte_size"], 64)))
    own("region without a size", lambda r: (r.ClearField("raw_input_contents"), put(r.inputs[0].parameters["shared_memory_region"], "nope")))
    own("unknown region for output", lambda r: (put(r.outputs[0].parameters["shared_memory_region"], "nope"), put(r.outputs[0].parameters["shared_memory_byte_size"], 64)))
    own("classification", lambda r: put(r.outputs[0].parameters["classification"], 1))
    own("classification 0", lambda r: put(r.outputs[0].parameters["classification"], 0))
    own("classification as string", lambda r: put(r.outputs[0].parameters["classification"], "1"))


def order():
    def infer(name, r):
        call("order: " + name, "ModelInfer", r)

    nope = lambda r: r.outputs.add(name="NOPE")
    infer("model, parameter", ask("nope", OK, timeout="5"))
    infer("version, parameter", ask("fraud", OK, version="9", timeout="5"))
    infer("parameter, shape", ask("fraud", rows(1, 15), triton_x=1))
    infer("reserved, timeout", ask("fraud", OK, triton_x=1, timeout="5"))
    infer("parameter, input twice", ask("fraud", OK, OK, timeout="5"))
    infer("dtype, shape", ask("fraud", ("INPUT", np.ones((1, 15), np.int32))))
    infer("shape, size", ask("fraud", ("INPUT", "FP32", [1, 15], b"x")))
    infer("output, input", ask("fraud", ("X", np.ones((1, 16), np.float32)), outs=["NOPE"]))
    infer("output, shape", ask("fraud", rows(1, 15), outs=["NOPE"]))
    infer("output, batch", ask("fraud", rows(65, 16), outs=["NOPE"]))
    infer("data, output", changed(changed(ask("fraud", OK), nope), lambda r: r.ClearField("raw_input_contents")))
    infer("batch, dtype", ask("fraud", ("INPUT", np.ones((65, 16), np.int32))))
    infer("batch, shape", ask("fraud", rows(65, 15)))
    infer("count, batch", ask("fraud", rows(65, 16), ("X", np.ones((65, 16), np.float32))))
    infer("name, batch", ask("fraud", ("X", np.ones((65, 16), np.float32))))
    infer("decoupled, version", ask("tokens", number("N", 1), version="7"))
    infer("decoupled, inputs", ask("tokens"))
    infer("decoupled, parameter", ask("tokens", timeout="5"))
    infer("raw and contents, model", changed(ask("zz", OK), lambda r: r.inputs[0].contents.SetInParent()))
    infer("sequence, shape", ask("seqsum", ("INPUT", np.ones((1, 2), np.int32))))
    infer("sequence, dtype", ask("seqsum", ("INPUT", np.ones((1, 1), np.float32)), sequence_id=3))
    infer("sequence, batch", ask("seqsum", ("INPUT", np.ones((2, 1), np.int32))))
    infer("sequence, start and batch", ask("seqsum", ("INPUT", np.ones((2, 1), np.int32)), sequence_id=3))


def echoes():
    def infer(name, r):
        call("echo: " + name, "ModelInfer", r)

    f = ("FP32", np.array([[1, 2], [3, 4]], np.float32))
    every = (
        f, ("FP16", np.array([1, 2], np.float16)), ("INT64", np.array([1 << 53, -1], np.int64)), ("UINT8", np.array([7], np.uint8)),
        ("BOOL", np.array([True, False], np.bool_)), ("BYTES", np.array([b"x", b"", b"\xff\xfe"], dtype=object)),
    )  # fmt: skip
    infer("nothing", ask("echo"))
    infer("everything", ask("echo", *every, id="i"))
    infer("empty tensors", ask("echo", ("UINT8", np.ones(0, np.uint8)), ("BYTES", np.array([], dtype=object))))
    infer("some outputs", ask("echo", *every, outs=["SEEN", "INT64_OUT", "UINT8_OUT"]))
    infer("an output that is not there", ask("echo", f, outs=["UINT8_OUT"]))
    infer("parameters", ask("echo", a=1, b='x"é<😀', c=True, d=1.0, e=0.1, sequence_id=5, sequence_start=True, priority=1, timeout=500000, triton_enable_empty_final_response=True))
    infer("sequence as string", ask("echo", sequence_id="s-77"))
    infer("too many", ask("echo", *every, ("Z", np.ones(1, np.float32))))
    infer("unknown", ask("echo", ("Z", np.ones(1, np.float32))))
    infer("rank", ask("echo", ("FP32", np.ones(2, np.float32))))
    infer("size", ask("echo", ("FP32", "FP32", [2, 2], b"x")))
    infer("negative dimension", ask("echo", ("FP32", "FP32", [-1, 2], bytes(16))))
    infer("more negative dimension", ask("echo", ("FP32", "FP32", [-2, 2], bytes(16))))
    infer("overflow", ask("echo", ("FP32", "FP32", [1 << 62, 4], bytes(32))))
    for k in "raise UNKNOWN INTERNAL NOT_FOUND INVALID_ARG UNAVAILABLE UNSUPPORTED ALREADY_EXISTS CANCELLED huh".split():
        infer(f"fail {k}", ask("echo", f, id="zz", fail=k))
    infer("flat", ask("echo_fp32", ("INPUT", np.arange(5, dtype=np.float32))))


def sequences():
    def infer(name, v=1, **p):
        call("sequence: " + name, "ModelInfer", ask("seqsum", ("INPUT", np.array([[v]], np.int32)), **p))

    infer("no id")
    infer("no start", sequence_id=99)
    infer("no start, string", sequence_id="abc")
    infer("id 0", sequence_id=0, sequence_start=True)
    infer("empty id", sequence_id="", sequence_start=True)
    infer("start", 1, sequence_id=5, sequence_start=True)
    infer("middle", 2, sequence_id=5)
    infer("start again", 7, sequence_id=5, sequence_start=True)
    infer("end", 2, sequence_id=5, sequence_end=True)
    infer("after the end", 2, sequence_id=5)
    infer("start and end", 2, sequence_id=5, sequence_start=True, sequence_end=True)
    infer("string", 2, sequence_id="s-77", sequence_start=True)
    infer("string goes on", 40, sequence_id="s-77", sequence_end=True)
    infer("negative id", 2, sequence_id=-5, sequence_start=True, sequence_end=True)
    infer("wraps", 2**31 - 1, sequence_id=6, sequence_start=True)
    infer("wrapped", 1, sequence_id=6, sequence_end=True)
    call("sequence: batch of 2", "ModelInfer", ask("seqsum", ("INPUT", np.ones((2, 1), np.int32)), sequence_id=8, sequence_start=True))
    call("sequence: control input", "ModelInfer", ask("seqsum", ("INPUT", np.ones((1, 1), np.int32)), ("START", np.ones((1, 1), np.int32)), sequence_id=8, sequence_start=True))


def streams():
    empty = {"triton_enable_empty_final_response": True}

    def tokens(id, *names, **p):
        return ask("tokens", *(number(k, v) for k, v in names), id=id, **p)

    fraud = lambda id, **p: ask("fraud", OK, id=id, **p)
    stream("tokens", tokens("a", ("N", 2)))
    stream("tokens, empty final", tokens("a", ("N", 2), **empty))
    stream("no tokens", tokens("a", ("N", 0)))
    stream("no tokens, empty final", tokens("a", ("N", 0), **empty))
    stream("empty final refused", tokens("a", ("N", 1), triton_enable_empty_final_response=False))
    stream("empty final as string", tokens("a", ("N", 1), triton_enable_empty_final_response="x"))
    stream("fails in the middle", tokens("f", ("N", 3), ("FAIL_AT", 1)))
    stream("fails in the middle, empty final", tokens("f", ("N", 3), ("FAIL_AT", 1), **empty))
    stream("bad N", tokens("f", ("N", -1)))
    stream("N missing", tokens("f", ("FAIL_AT", 9)))
    stream("N of another type", ask("tokens", ("N", np.ones(1, np.float32)), id="f"))
    stream("unknown input", tokens("f", ("N", 1), ("ZZ", 1)))
    stream("too many inputs", tokens("f", ("N", 1), ("ZZ", 1), ("DELAY_MS", 0), ("FAIL_AT", 1)))
    stream(
        "good and bad", fraud("1"), ask("nope", OK, id="2"), fraud("3"), ask("fraud", rows(1, 15), id="4"), fraud("5", **empty),
        ask("fraud", OK, version="9", id="6"), ask("fraud", OK, version="x", id="7"), fraud("8", triton_x=1), fraud("9", timeout="x"),
        ask("fraud", OK, outs=["NOPE"], id="10"), fraud(""),
    )  # fmt: skip
    stream("nothing")
    stream("models that fail", ask("echo", id="zz", fail="INTERNAL"), ask("echo", id="zy", fail="raise"))
    one = ("INPUT", np.ones((1, 1), np.int32))
    stream("sequence", ask("seqsum", one, id="s1", sequence_id=4), ask("seqsum", one, id="s2", sequence_id=4, sequence_start=True), ask("seqsum", one, id="s3", sequence_id=4, sequence_end=True))
    stream("garbage", b"\xff\xff\xff")


def questions():
    call("live", "ServerLive", pb.ServerLiveRequest())
    call("ready", "ServerReady", pb.ServerReadyRequest())
    call("server metadata", "ServerMetadata", pb.ServerMetadataRequest())
    for m in ("fraud", "cnn", "text", "seqsum", "tokens", "echo", "echo_fp32"):
        call(f"metadata of {m}", "ModelMetadata", pb.ModelMetadataRequest(name=m))
        call(f"config of {m}", "ModelConfig", pb.ModelConfigRequest(name=m))
    for name, version in (("fraud", "1"), ("fraud", "9"), ("fraud", "x"), ("nope", ""), ("", "")):
        call(f"metadata of {name} {version}", "ModelMetadata", pb.ModelMetadataRequest(name=name, version=version))
        call(f"config of {name} {version}", "ModelConfig", pb.ModelConfigRequest(name=name, version=version))
        call(f"statistics of {name} {version}", "ModelStatistics", pb.ModelStatisticsRequest(name=name, version=version), response=False)
    index()
    call("ready index", "RepositoryIndex", pb.RepositoryIndexRequest(ready=True))
    call("index of a repository", "RepositoryIndex", pb.RepositoryIndexRequest(repository_name="x"))


def index():
    call("index", "RepositoryIndex", pb.RepositoryIndexRequest())


def settings():
    def trace(name, model="", **values):
        r = pb.TraceSettingRequest(model_name=model)
        for k, v in values.items():
            r.settings[k].value.extend(v)
        call("trace: " + name, "TraceSetting", r)

    trace("get"), trace("model", "fraud"), trace("unknown model", "nope")
    trace("set", trace_rate=["77"]), trace("set for a model", "fraud", trace_rate=["78"]), trace("get of the model", "fraud")
    trace("clear of the model", "fraud", trace_rate=[]), trace("clear", trace_rate=[])
    trace("bad rate", trace_rate=["x"]), trace("bad level", trace_level=["x"]), trace("level without a file", trace_level=["TIMESTAMPS"])
    trace("level off", trace_level=["OFF"]), trace("unknown", nope=["x"]), trace("file", trace_file=["x"])
    trace("count", trace_count=["5"]), trace("frequency", log_frequency=["5"]), trace("mode", trace_mode=["opentelemetry"])

    def log(name, **values):
        r = pb.LogSettingsRequest()
        for k, v in values.items():
            if isinstance(v, int) and not isinstance(v, bool):
                r.settings[k].uint32_param = v
            else:
                put(r.settings[k], v)
        call("log: " + name, "LogSettings", r)

    log("get"), log("info off", log_info=False), log("info on", log_info=True), log("verbose", log_verbose_level=1), log("quiet", log_verbose_level=0)
    log("format", log_format="ISO8601"), log("format back", log_format="default"), log("bad format", log_format="x")
    log("bool as string", log_info="x"), log("level as string", log_verbose_level="x"), log("file", log_file="x"), log("unknown", nope="x")


def memory():
    call("shm status", "SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest())
    call("shm status of a name", "SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name="x"))
    call("shm register", "SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(name="x", key="/nokey", byte_size=64))
    call("shm unregister", "SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name="x"))
    call("shm unregister all", "SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest())
    call("cuda status", "CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest())
    call("cuda status of a name", "CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(name="x"))
    call("cuda register", "CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="x", raw_handle=b"x", byte_size=64))
    call("cuda unregister", "CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest(name="x"))


def control():
    def load(name, model="fraud", repository="", **parameters):
        r = pb.RepositoryModelLoadRequest(model_name=model, repository_name=repository)
        for k, v in parameters.items():
            put(r.parameters[k.replace("__", ":").replace("--", "/")], v)
        call("load: " + name, "RepositoryModelLoad", r)

    def unload(name, model="fraud", repository="", **parameters):
        r = pb.RepositoryModelUnloadRequest(model_name=model, repository_name=repository)
        for k, v in parameters.items():
            put(r.parameters[k], v)
        call("unload: " + name, "RepositoryModelUnload", r)

    def state(of):
        for v in ("", "1", "9"):
            call(f"{of}: infer {v!r}", "ModelInfer", ask("fraud", OK, version=v))
            call(f"{of}: ready {v!r}", "ModelReady", pb.ModelReadyRequest(name="fraud", version=v))
            call(f"{of}: metadata {v!r}", "ModelMetadata", pb.ModelMetadataRequest(name="fraud", version=v))
            call(f"{of}: config {v!r}", "ModelConfig", pb.ModelConfigRequest(name="fraud", version=v))
            call(f"{of}: statistics {v!r}", "ModelStatistics", pb.ModelStatisticsRequest(name="fraud", version=v), response=False)
        stream(f"{of}: stream", ask("fraud", OK, id="1"), ask("fraud", OK, version="1", id="2"))
        index()
        call(f"{of}: server ready", "ServerReady", pb.ServerReadyRequest())

    load("unknown", "nope"), load("no name", ""), unload("unknown", "nope"), unload("no name", "")
    load("repository", repository="x"), unload("repository", repository="x")
    load("what is loaded")
    unload("fraud")
    settle("fraud")
    state("unloaded")
    call("trace of an unloaded model", "TraceSetting", pb.TraceSettingRequest(model_name="fraud"))
    unload("twice")
    load("again")
    state("loaded again")
    tensor = lambda n, dims: {"name": n, "data_type": "TYPE_FP32", "dims": dims}
    config = {
        "name": "fraud", "backend": "onnxruntime", "max_batch_size": 8, "input": [tensor("INPUT", [16])], "output": [tensor("SCORE", [1])],
        "version_policy": {"specific": {"versions": [2]}}, "instance_group": [{"kind": "KIND_CPU", "count": 1}],
    }  # fmt: skip
    load("config as bytes", config=b"{"), load("unknown parameter", zz="{"), load("config that is no JSON", config="{")
    load("config of another name", config='{"name":"x"}'), load("file without a config", file__1=b"x")
    load("unknown backend", config='{"name":"fraud","backend":"zz"}')
    state("after loads that failed")
    load("config", config=json.dumps(config))
    settle("fraud")
    state("after a load with a config")
    load("plain again")
    state("after a plain load")
    unload("bad parameter", unload_dependents="x"), unload("dependents", unload_dependents=True)
    settle("fraud")
    load("from the folder")
    state("from the folder")


if __name__ == "__main__":
    for part in (versions, inputs, parameters, order, echoes, sequences, streams, questions, settings, memory, control):
        part()
    sys.stdout.write("[\n" + ",\n".join(json.dumps(s) for s in STEPS) + "\n]\n")
