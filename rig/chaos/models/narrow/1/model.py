import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for r in requests:
            time.sleep(0.05)
            answers.append(pb.InferenceResponse([pb.Tensor("OUTPUT", pb.get_input_tensor_by_name(r, "INPUT").as_numpy())]))
        return answers
