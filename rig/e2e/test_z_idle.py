"""O-02 (b): a client that pings every 10 s without calling keeps its connection. The connection is opened when the session starts
(conftest.py) and used again here, in the last file, so that the wait is mostly over by itself."""

import time

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from calls import KSERVE, request

# gRPC allows two strikes: a server that minds would have closed after the third ping.
SILENCE = 42


def test_pings_of_idle_clients_are_welcome(pinging):
    channel, began, states = pinging
    time.sleep(max(0.0, SILENCE - (time.monotonic() - began)))
    infer(channel)
    assert "TRANSIENT_FAILURE" not in states and states.count("READY") == 1, f"the connection was lost: {states}"


def infer(channel):
    call = channel.unary_unary(KSERVE + "ModelInfer", lambda m: m.SerializeToString(), pb.ModelInferResponse.FromString)
    message = request("fraud", [("INPUT", "FP32", np.ones((1, 16), np.float32))])
    assert call(message, timeout=10).model_name == "fraud"
