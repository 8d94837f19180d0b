"""OUTPUT is INPUT."""

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb.InferenceResponse([pb.Tensor("OUTPUT", pb.get_input_tensor_by_name(r, "INPUT").as_numpy())]) for r in requests
        ]
