"""The goldens of triton-models, read as triton-models/README.md says."""

import json
import math
import pathlib

import numpy as np

from calls import DTYPES

MODELS = pathlib.Path(__file__).resolve().parent.parent.parent / "triton-models"


def array(t):
    shape, n = t["shape"], math.prod(t["shape"])
    if t["datatype"] == "BYTES":
        return np.array([s.encode() for s in t["data"]], object).reshape(shape)
    if "constant" in t:
        return np.full(shape, t["constant"], DTYPES[t["datatype"]])
    if "lcg" in t:
        out, x = np.empty(n, np.float32), t["lcg"]
        for i in range(n):
            x = (1664525 * x + 1013904223) & 0xFFFFFFFF
            out[i] = (x >> 8) / 16777216
        return out.reshape(shape)
    return np.array(t["data"], DTYPES[t["datatype"]]).reshape(shape)


def load():
    """(model, version, name, {input: (datatype, array)}, {output: array}) of every case."""
    out = []
    for path in sorted(MODELS.glob("*/golden.json")):
        doc = json.loads(path.read_text())
        for c in doc["cases"]:
            ins = {k: (t["datatype"], array(t)) for k, t in c["inputs"].items()}
            outs = {k: array(t) for k, t in c["outputs"].items()}
            out.append((doc["model"], c["version"], c["name"], ins, outs))
    return out


CASES = load()
IDS = [f"{m}-{v}-{n}".replace(" ", "_") for m, v, n, _, _ in CASES]
