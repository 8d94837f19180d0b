"""A Python-based Triton backend named onnxruntime: serves `backend: "onnxruntime"` models, unchanged, with the CPU wheel of
onnxruntime where Triton's own C++ backend is not to be had.

Requests that Triton's dynamic batcher hands over together run as one batch, or batching would gain nothing. Requests whose
tensors do not fit together run in groups of their own; if a batch fails, each of its requests runs alone, so that a bad one
fails by itself. Requests whose caller is gone are not run. Strings are UTF-8, as onnxruntime wants them.
"""

import json
import os

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        return config

    def initialize(self, args):
        config = json.loads(args["model_config"])
        file = config.get("default_model_filename") or "model.onnx"
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(
            os.path.join(args["model_repository"], args["model_version"], file), options, providers=["CPUExecutionProvider"]
        )
        self.batches = config.get("max_batch_size", 0) > 0
        self.inputs = self.match("input", config, self.session.get_inputs())
        self.outputs = self.match("output", config, self.session.get_outputs())

    @staticmethod
    def match(side, config, have):
        """The names of the configuration, each of which the file must have; else loading fails saying so."""
        names, known = [t["name"] for t in config[side]], {t.name for t in have}
        if missing := [n for n in names if n not in known]:
            raise pb.TritonModelException(f"the ONNX file has no {side} {missing}; it has {sorted(known)}")
        return names

    def execute(self, requests):
        answers = [None] * len(requests)
        groups = {}
        for at, request in enumerate(requests):
            if request.is_cancelled():
                answers[at] = failed("the caller is gone", pb.TritonError.CANCELLED)
                continue
            try:
                feed = {n: self.tensor(request, n) for n in self.inputs}
            except Exception as e:
                answers[at] = failed(str(e), pb.TritonError.INVALID_ARG)
                continue
            key = tuple((x.shape[1:], x.dtype.str) for x in feed.values()) if self.batches else at
            groups.setdefault(key, []).append((at, feed))
        for group in groups.values():
            for (at, _), answer in zip(group, self.run([feed for _, feed in group])):
                answers[at] = answer
        return answers

    @staticmethod
    def tensor(request, name):
        x = pb.get_input_tensor_by_name(request, name).as_numpy()
        if x.dtype == np.object_:
            x = np.array([bytes(v).decode() for v in x.ravel()], np.object_).reshape(x.shape)
        return x

    def run(self, feeds):
        """One answer per feed."""
        try:
            if len(feeds) == 1:
                return [self.answer(self.session.run(self.outputs, feeds[0]))]
            rows = np.cumsum([len(f[self.inputs[0]]) for f in feeds])
            got = self.session.run(self.outputs, {n: np.concatenate([f[n] for f in feeds]) for n in self.inputs})
            if any(len(g) != rows[-1] for g in got):
                raise ValueError("an output does not have one row per row of the inputs")
            return [self.answer(parts) for parts in zip(*(np.split(g, rows[:-1]) for g in got))]
        except Exception as e:
            if len(feeds) == 1:
                return [failed(str(e), pb.TritonError.INVALID_ARG)]
            return [answer for feed in feeds for answer in self.run([feed])]

    def answer(self, arrays):
        return pb.InferenceResponse([pb.Tensor(n, encoded(a)) for n, a in zip(self.outputs, arrays)])


def encoded(a):
    if a.dtype == np.object_:
        return np.array([str(v).encode() for v in a.ravel()], np.object_).reshape(a.shape)
    return np.ascontiguousarray(a)


def failed(message, kind):
    return pb.InferenceResponse(error=pb.TritonError(message, kind))
