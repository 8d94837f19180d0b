"""Ways to call a gateway, or a bare Triton, that give an Outcome whatever happens: the raw wire, not a client's idea of it."""

import dataclasses
import http.client
import json
import struct
import urllib.parse
from typing import Any

import grpc
import numpy as np
from google.rpc import error_details_pb2, status_pb2
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as pbg

SECONDS = 30  # no call of this suite may take longer
KSERVE, PREDICT = "/inference.GRPCInferenceService/", "/ml.inference.InferenceService/"
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

DTYPES = {
    "FP32": np.float32, "FP16": np.float16, "FP64": np.float64, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8,
    "UINT64": np.uint64, "BOOL": np.bool_,
}  # fmt: skip


@dataclasses.dataclass
class Outcome:
    """What came back. code is a gRPC code's name or an HTTP status; reason is ErrorInfo's, or that of an HTTP error."""

    code: Any
    reason: str | None = None
    message: str = ""
    value: Any = None
    headers: dict = dataclasses.field(default_factory=dict)
    retry: float | None = None

    @property
    def ok(self):
        return self.code in ("OK", 200)

    def must(self):
        """The value of a call that must succeed."""
        assert self.ok, f"{self.code} {self.reason}: {self.message}"
        return self.value


def failed(e):
    """The Outcome of a grpc.RpcError."""
    reason = retry = None
    for key, value in e.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info, wait = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
                if detail.Unpack(info):
                    reason = info.reason
                elif detail.Unpack(wait):
                    retry = wait.retry_delay.ToTimedelta().total_seconds()
    return Outcome(e.code().name, reason, e.details() or "", headers=metadata_of(e.initial_metadata()), retry=retry)


def metadata_of(pairs):
    out = {}
    for k, v in pairs or ():
        out.setdefault(k, []).append(v)
    return out


def raw(datatype, data):
    """The bytes of a tensor as KServe puts them into raw_input_contents."""
    if datatype == "BYTES":
        items = [x if isinstance(x, bytes) else x.encode() for x in np.asarray(data, object).ravel()]
        return b"".join(struct.pack("<I", len(x)) + x for x in items)
    return np.ascontiguousarray(data, DTYPES[datatype]).tobytes()


def unraw(datatype, shape, blob):
    if datatype == "BYTES":
        out, at = [], 0
        while at < len(blob):
            (n,) = struct.unpack_from("<I", blob, at)
            out.append(blob[at + 4 : at + 4 + n])
            at += 4 + n
        a = np.empty(len(out), object)
        a[:] = out
        return a.reshape(shape)
    return np.frombuffer(blob, DTYPES[datatype]).reshape(shape)


def request(model, inputs=(), version="", params=None, outputs=(), id=""):
    """A ModelInferRequest with raw contents. inputs: (name, datatype, array); an array may be bytes with a shape, (bytes, shape)."""
    r = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name, datatype, data in inputs:
        if isinstance(data, tuple):
            blob, shape = data
        else:
            data = np.asarray(data)
            blob, shape = raw(datatype, data), data.shape
        r.inputs.add(name=name, datatype=datatype, shape=list(shape))
        r.raw_input_contents.append(blob)
    for name in outputs:
        r.outputs.add(name=name)
    for key, value in (params or {}).items():
        set_parameter(r.parameters[key], value)
    return r


def set_parameter(p, value):
    if isinstance(value, bool):
        p.bool_param = value
    elif isinstance(value, int):
        p.int64_param = value
    elif isinstance(value, float):
        p.double_param = value
    elif isinstance(value, str):
        p.string_param = value
    else:
        p.CopyFrom(value)


def tensors(answer):
    """The outputs of a ModelInferResponse by name."""
    return {o.name: unraw(o.datatype, list(o.shape), b) for o, b in zip(answer.outputs, answer.raw_output_contents)}


def parameter(answer, name):
    if name not in answer.parameters:
        return None
    p = answer.parameters[name]
    return getattr(p, p.WhichOneof("parameter_choice"))


class Client:
    """One gateway (or Triton), by its data address. predict_pb2 is the module made from the users' proto; None without."""

    def __init__(self, address, predict_pb2=None, http_address=None):
        self.address, self.http_address, self.predict_pb2 = address, http_address or address, predict_pb2
        self.channel = grpc.insecure_channel(address, UNLIMITED)
        self.stub = pbg.GRPCInferenceServiceStub(self.channel)

    def close(self):
        self.channel.close()

    def unary(self, method, message, reply=None, metadata=None, seconds=SECONDS):
        """Any unary RPC, by its full method. message is a message or bytes."""
        call = self.channel.unary_unary(
            method,
            request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
            response_deserializer=reply.FromString if reply else None,
        )
        try:
            value, info = call.with_call(message, timeout=seconds, metadata=metadata)
            return Outcome("OK", value=value, headers=metadata_of(info.initial_metadata()))
        except grpc.RpcError as e:
            return failed(e)

    def infer(self, message, **kw):
        return self.unary(KSERVE + "ModelInfer", message, pb.ModelInferResponse, **kw)

    def ask(self, method, message, **kw):
        """A KServe RPC other than inference, whose reply has the request's name with Response."""
        return self.unary(KSERVE + method, message, getattr(pb, type(message).__name__.replace("Request", "Response")), **kw)

    def predict(self, model, tensor=b"", version=0, metadata=None, grpc_metadata=None, **kw):
        p = self.predict_pb2
        m = p.PredictionRequest(model_name=model, model_version=version, input_tensor=tensor, metadata=metadata or {})
        return self.unary(PREDICT + "Predict", m, p.PredictionResponse, metadata=grpc_metadata, **kw)

    def predict_stream(self, requests, **kw):
        return self.stream(PREDICT + "PredictStream", requests, self.predict_pb2.PredictionResponse, **kw)

    def infer_stream(self, requests, **kw):
        return self.stream(KSERVE + "ModelStreamInfer", requests, pb.ModelStreamInferResponse, **kw)

    def stream(self, method, requests, reply, metadata=None, seconds=SECONDS):
        """Sends all requests, reads all answers; value is their list, also when the stream failed after some."""
        call = self.channel.stream_stream(
            method,
            request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        answers = []
        running = call(iter(list(requests)), timeout=seconds, metadata=metadata)
        try:
            for a in running:
                answers.append(a)
        except grpc.RpcError as e:
            out = failed(e)
            out.value = answers
            return out
        return Outcome("OK", value=answers, headers=metadata_of(running.initial_metadata()))

    def http(self, method, path, body=None, headers=None, seconds=SECONDS):
        """One HTTP/1.1 exchange. A dict as body is sent as JSON; the value is the body of the answer."""
        conn = http.client.HTTPConnection(self.http_address, timeout=seconds)
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        try:
            try:
                conn.request(method, path, body=body, headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server may answer and hang up before it has read all
            r = conn.getresponse()
            data = r.read()
        finally:
            conn.close()
        out = Outcome(r.status, value=data, headers=metadata_of((k.lower(), v) for k, v in r.getheaders()))
        if r.status != 200:
            try:
                doc = json.loads(data)
                out.reason, out.message = doc.get("reason"), doc.get("error", "")
            except ValueError:
                out.message = data.decode(errors="replace")
        return out

    def json(self, method, path, body=None, **kw):
        """Like http, and the value of a good answer is what its JSON says."""
        out = self.http(method, path, body, **kw)
        if out.ok:
            out.value = json.loads(out.value)
        return out

    def infer_path(self, model, version=""):
        model = urllib.parse.quote(model, safe="")
        return f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
