"""Each input NAME comes back as NAME_OUT. SEEN is JSON of what the model saw: {"version", "id", "sequence", "parameters",
"outputs", "cancelled"}; parameters include forwarded headers, cancelled is how many requests were given up while they ran.

Parameters of the request that the model itself obeys:
  delay_ms   waits that long first (at most 60,000), unless the caller goes away
  fail       "raise" throws; else the name of an error code of Triton's: answers with that error
"""

import json
import time

import numpy as np
import triton_python_backend_utils as pb

NAMES = ("FP32", "FP16", "INT64", "UINT8", "BOOL", "BYTES")
ERRORS = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED")


class TritonPythonModel:
    def initialize(self, args):
        self.version, self.cancelled = args["model_version"], 0

    def execute(self, requests):
        return [self.one(r) for r in requests]

    def one(self, r):
        parameters = json.loads(r.parameters() or "{}")
        fail = parameters.get("fail")
        if not self.wait(r, parameters.get("delay_ms", 0)):
            self.cancelled += 1
            return pb.InferenceResponse(error=pb.TritonError("the caller is gone", pb.TritonError.CANCELLED))
        if fail == "raise":
            raise ValueError("asked to fail")
        if fail in ERRORS:
            return pb.InferenceResponse(error=pb.TritonError("asked to fail", getattr(pb.TritonError, fail)))
        seen = {
            "version": self.version, "id": r.request_id(), "sequence": r.correlation_id(), "parameters": parameters,
            "outputs": sorted(r.requested_output_names()), "cancelled": self.cancelled,
        }  # fmt: skip
        out = [pb.Tensor("SEEN", np.array([json.dumps(seen, sort_keys=True).encode()], np.object_))]
        for name in NAMES:
            t = pb.get_input_tensor_by_name(r, name)
            if t is not None:
                out.append(pb.Tensor(name + "_OUT", t.as_numpy()))
        return pb.InferenceResponse(out)

    @staticmethod
    def wait(request, ms):
        until = time.monotonic() + min(int(ms), 60_000) / 1000
        while (left := until - time.monotonic()) > 0:
            if request.is_cancelled():
                return False
            time.sleep(min(left, 0.01))
        return True
