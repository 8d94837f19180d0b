"""Questions about servers and models, and what changes them: refused unless the configuration opens it (O-18)."""

import json
import time

import numpy as np
import pytest
import tritonclient.grpc as tg
from tritonclient.grpc import model_config_pb2 as mc
from tritonclient.grpc import service_pb2 as pb

from calls import Outcome

ALL = {"fraud", "cnn", "text", "seqsum", "tokens", "echo", "echo_fp32"}


def test_server(gw):
    assert gw.ask("ServerLive", pb.ServerLiveRequest()).must().live
    assert gw.ask("ServerReady", pb.ServerReadyRequest()).must().ready
    meta = gw.ask("ServerMetadata", pb.ServerMetadataRequest()).must()
    assert meta.name and meta.version


@pytest.mark.parametrize(("name", "version", "ready"), [("fraud", "", True), ("fraud", "1", True), ("fraud", "9", False), ("nope", "", False)])
def test_model_ready(gw, name, version, ready):
    assert gw.ask("ModelReady", pb.ModelReadyRequest(name=name, version=version)).must().ready is ready


@pytest.mark.parametrize("model", sorted(ALL))
def test_metadata_and_config(gw, record, model):
    meta = gw.ask("ModelMetadata", pb.ModelMetadataRequest(name=model)).must()
    assert meta.name == model and meta.versions
    tensors = [f"{t.name} {t.datatype} {list(t.shape)}" for t in (*meta.inputs, *meta.outputs)]
    config = gw.ask("ModelConfig", pb.ModelConfigRequest(name=model)).must().config
    assert config.name == model
    facts = {
        "versions": list(meta.versions), "tensors": tensors, "max_batch_size": config.max_batch_size, "backend": config.backend,
        "decoupled": config.model_transaction_policy.decoupled,
        "inputs": [f"{i.name} {mc.DataType.Name(i.data_type)} {list(i.dims)} {i.optional}" for i in config.input],
        "outputs": [f"{o.name} {mc.DataType.Name(o.data_type)} {list(o.dims)}" for o in config.output],
        "batching": [list(config.dynamic_batching.preferred_batch_size), config.dynamic_batching.max_queue_delay_microseconds],
        "scheduling": config.WhichOneof("scheduling_choice"),
    }  # fmt: skip
    record.outcome(Outcome("OK", json.dumps(facts, sort_keys=True)))


def test_versions_listed_are_those_that_can_be_asked_for(gw, aliased):
    def versions(client, name, version=""):
        return list(client.ask("ModelMetadata", pb.ModelMetadataRequest(name=name, version=version)).must().versions)

    assert versions(gw, "fraud") == ["1", "2"]
    assert versions(gw, "fraud", "1") == ["1"]
    assert versions(aliased, "team/bert") == ["1"]


def test_index(gw):
    index = gw.ask("RepositoryIndex", pb.RepositoryIndexRequest()).must()
    assert {m.name for m in index.models} >= ALL
    assert {(m.version, m.state) for m in index.models if m.name == "fraud"} == {("1", "READY"), ("2", "READY")}


def test_statistics_count_calls(address):
    with tg.InferenceServerClient(address) as client:

        def count():
            stats = client.get_inference_statistics("fraud", "1", as_json=True)["model_stats"]
            return sum(int(s["inference_stats"]["success"].get("count", 0)) for s in stats)

        before = count()
        t = tg.InferInput("INPUT", [1, 16], "FP32")
        t.set_data_from_numpy(np.ones((1, 16), np.float32))
        for _ in range(3):
            client.infer("fraud", [t], model_version="1")
        until = time.monotonic() + 5  # Triton counts a call after it has answered it
        while (now := count()) < before + 3 and time.monotonic() < until:
            time.sleep(0.02)
        assert now == before + 3


CONTROL = [
    ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="fraud")),
    ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="fraud")),
    ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()),
    ("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(name="r", key="/k", byte_size=64)),
    ("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name="r")),
    ("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest()),
    ("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=b"h", byte_size=64)),
    ("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest(name="r")),
    ("TraceSetting", pb.TraceSettingRequest()),
    ("LogSettings", pb.LogSettingsRequest()),
]


@pytest.mark.parametrize(("method", "message"), CONTROL, ids=[m for m, _ in CONTROL])
def test_control_is_closed(gw, record, method, message):
    out = gw.ask(method, message)
    record.outcome(out)
    assert (out.code, out.reason) == ("PERMISSION_DENIED", "CONTROL_OFF")
    assert "control" in out.message


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/repository/models/fraud/load"), ("POST", "/v2/repository/models/fraud/unload"),
        ("GET", "/v2/systemsharedmemory/status"), ("POST", "/v2/systemsharedmemory/region/r/register"),
        ("GET", "/v2/trace/setting"), ("POST", "/v2/logging"),
    ],
)  # fmt: skip
def test_control_is_closed_over_http(gw, method, path):
    body = {"key": "/k", "byte_size": 64} if path.endswith("register") else {} if method == "POST" else None
    out = gw.http(method, path, body)
    assert (out.code, out.reason) == (403, "CONTROL_OFF"), out.message


def test_models_are_still_there(gw):
    """After all those attempts."""
    assert gw.ask("ModelReady", pb.ModelReadyRequest(name="fraud")).must().ready
