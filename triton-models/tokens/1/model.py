"""Answers tok0 … tokN-1, DELAY_MS after one another, then the final mark. In place of token FAIL_AT comes an error,
which ends the request. N outside 0-100,000 or DELAY_MS outside 0-60,000 is refused. Stops when the caller is gone."""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb

MAX_TOKENS, MAX_DELAY = 100_000, 60_000


class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            threading.Thread(target=self.answer, args=(r, r.get_response_sender()), daemon=True).start()

    def answer(self, request, sender):
        n, delay, fail_at = self.value(request, "N", 1), self.value(request, "DELAY_MS", 0), self.value(request, "FAIL_AT", -1)
        if not 0 <= n <= MAX_TOKENS:
            self.fail(sender, f"N must be 0 to {MAX_TOKENS}, not {n}", pb.TritonError.INVALID_ARG)
        elif not 0 <= delay <= MAX_DELAY:
            self.fail(sender, f"DELAY_MS must be 0 to {MAX_DELAY}, not {delay}", pb.TritonError.INVALID_ARG)
        else:
            for i in range(n):
                if i and not self.wait(request, delay / 1000):
                    break
                if i == fail_at:
                    self.fail(sender, f"token {i} failed", pb.TritonError.INTERNAL)
                    break
                sender.send(pb.InferenceResponse([pb.Tensor("TOKEN", np.array([b"tok%d" % i], np.object_))]))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    @staticmethod
    def wait(request, seconds):
        """Waits; False when the caller is gone."""
        until = time.monotonic() + seconds
        while not request.is_cancelled():
            left = until - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(left, 0.02))
        return False

    @staticmethod
    def fail(sender, message, kind):
        sender.send(pb.InferenceResponse(error=pb.TritonError(message, kind)))

    @staticmethod
    def value(request, name, default):
        t = pb.get_input_tensor_by_name(request, name)
        return default if t is None else int(t.as_numpy().flat[0])
