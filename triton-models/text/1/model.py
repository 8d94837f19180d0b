"""How likely a text is spam: words hashed into buckets, one weight a bucket, a sigmoid.

A word is a longest run of the bytes a-z, 0-9 and 0x80-0xff, after A-Z were lower-cased. Its bucket is crc32 (IEEE) modulo
"buckets" of weights.json. score = sigmoid(bias + sum of weights / sqrt(number of words)); without words, sigmoid(bias).
"""

import json
import math
import os
import re
import zlib

import numpy as np
import triton_python_backend_utils as pb

WORD = re.compile(rb"[a-z0-9\x80-\xff]+")


class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "weights.json")
        with open(path, encoding="utf-8") as f:
            doc = json.load(f)
        self.buckets, self.bias = doc["buckets"], doc["bias"]
        self.weights = {int(k): v for k, v in doc["weights"].items()}

    def score(self, text):
        words = WORD.findall(text.lower())
        z = self.bias
        if words:
            z += sum(self.weights.get(zlib.crc32(w) % self.buckets, 0.0) for w in words) / math.sqrt(len(words))
        return 1 / (1 + math.exp(-z))

    def execute(self, requests):
        answers = []
        for r in requests:
            texts = pb.get_input_tensor_by_name(r, "TEXT").as_numpy()
            scores = np.array([[self.score(bytes(t))] for t in texts.ravel()], np.float32)
            answers.append(pb.InferenceResponse([pb.Tensor("SCORE", scores)]))
        return answers
