"""A model server that is nothing but ears: it notes what reaches it, metadata as it came, and answers what a test tells it.

It stands on gRPC's C core with its defaults, as Triton does: the same enforcement of pings, the same limits.
"""

import threading
import time
from concurrent import futures

import grpc
from tritonclient.grpc import model_config_pb2, service_pb2_grpc
from tritonclient.grpc import service_pb2 as pb

from calls import UNLIMITED


class Seen:
    """One inference that arrived."""

    def __init__(self, request, context):
        self.request, self.metadata = request, {}
        for k, v in context.invocation_metadata():
            self.metadata.setdefault(k, []).append(v)
        self.remaining = context.time_remaining()
        self.peer = context.peer()
        self.ended = threading.Event()  # the call is over, whoever ended it
        context.add_callback(self.ended.set)


class Recorder(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Serves one model, `ear`, with a UINT8 tensor of any length; answers with its input."""

    def __init__(self, port=0):
        self.calls, self.arrived = [], threading.Condition()
        self.seconds = 0.0  # how long each inference takes; it ends early when the caller is gone
        self.server = grpc.server(futures.ThreadPoolExecutor(64), options=UNLIMITED)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(f'127.0.0.1:{port}')}"
        self.server.start()

    def stop(self):
        self.server.stop(0.2).wait(5)

    def clear(self):
        with self.arrived:
            self.calls.clear()
        self.seconds = 0.0

    def wait(self, n=1, seconds=10):
        """The n-th inference, once it has arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.calls) >= n, seconds), f"{len(self.calls)} of {n} calls arrived"
            return self.calls[n - 1]

    def _note(self, request, context):
        seen = Seen(request, context)
        with self.arrived:
            self.calls.append(seen)
            self.arrived.notify_all()
        seen.ended.wait(self.seconds)
        return self._answer(request)

    @staticmethod
    def _answer(request):
        answer = pb.ModelInferResponse(model_name="ear", model_version=request.model_version or "1", id=request.id)
        answer.outputs.add(name="OUTPUT", datatype="UINT8", shape=request.inputs[0].shape)
        answer.raw_output_contents.append(request.raw_input_contents[0])
        return answer

    def ModelInfer(self, request, context):
        context.send_initial_metadata([("x-model-note", "first"), ("note-bin", b"\x00\xff")])
        context.set_trailing_metadata([("x-model-last", "last")])
        return self._note(request, context)

    def ModelStreamInfer(self, requests, context):
        for r in requests:
            yield pb.ModelStreamInferResponse(infer_response=self._note(r, context))

    def ServerLive(self, request, context):
        return pb.ServerLiveResponse(live=True)

    def ServerReady(self, request, context):
        return pb.ServerReadyResponse(ready=True)

    def ServerMetadata(self, request, context):
        return pb.ServerMetadataResponse(name="recorder", version="1")

    def ModelReady(self, request, context):
        return pb.ModelReadyResponse(ready=request.name == "ear")

    def RepositoryIndex(self, request, context):
        r = pb.RepositoryIndexResponse()
        r.models.add(name="ear", version="1", state="READY")
        return r

    def _known(self, request, context):
        if request.name != "ear":
            context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found")

    def ModelMetadata(self, request, context):
        self._known(request, context)
        r = pb.ModelMetadataResponse(name="ear", versions=["1"], platform="ear")
        r.inputs.add(name="INPUT", datatype="UINT8", shape=[-1])
        r.outputs.add(name="OUTPUT", datatype="UINT8", shape=[-1])
        return r

    def ModelConfig(self, request, context):
        self._known(request, context)
        config = model_config_pb2.ModelConfig(name="ear", backend="ear")
        config.input.add(name="INPUT", data_type=model_config_pb2.TYPE_UINT8, dims=[-1])
        config.output.add(name="OUTPUT", data_type=model_config_pb2.TYPE_UINT8, dims=[-1])
        return pb.ModelConfigResponse(config=config)


def until(condition, seconds=10):
    """Waits for a condition that nothing announces."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
