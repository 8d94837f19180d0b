"""The sum of a sequence so far, as a 32-bit number that wraps. START begins at 0, END forgets."""

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for r in requests:
            sequence = r.correlation_id()
            if self.first(r, "START"):
                self.sums[sequence] = 0
            total = (self.sums.get(sequence, 0) + self.first(r, "INPUT") + 2**31) % 2**32 - 2**31
            self.sums[sequence] = total
            if self.first(r, "END"):
                del self.sums[sequence]
            answers.append(pb.InferenceResponse([pb.Tensor("SUM", np.array([[total]], np.int32))]))
        return answers

    @staticmethod
    def first(request, name):
        return int(pb.get_input_tensor_by_name(request, name).as_numpy().flat[0])
