"""Makes everything in this folder that is computed: the ONNX files, the text model's weights, and golden answers.

    .cache/rig/venv/bin/python triton-models/make_models.py            writes the files
    .cache/rig/venv/bin/python triton-models/make_models.py --check    fails when what is there differs from a fresh run

Needs onnx, onnxruntime and numpy as pinned in rig/requirements.txt. Seeds are fixed, training runs in float64, and every
trained weight is rounded to a multiple of 2^-12, so that the last bits of one machine's arithmetic hardly ever reach the files; --check lets such
differences pass.
"""

import argparse
import json
import math
import pathlib
import sys
import tempfile
import zlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
GRID = 4096.0  # weights are multiples of 1/GRID


def rounded(a):
    return np.round(np.asarray(a, np.float64) * GRID) / GRID


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-np.clip(z, -60, 60)))


def auc(score, label):
    """The probability that a positive scores above a negative."""
    order = np.argsort(score, kind="stable")
    rank = np.empty(len(score))
    rank[order] = np.arange(1, len(score) + 1)
    pos = label > 0.5
    n, m = pos.sum(), (~pos).sum()
    return (rank[pos].sum() - n * (n + 1) / 2) / (n * m)


class Adam:
    """Adam on a list of arrays, in place."""

    def __init__(self, params, rate):
        self.params, self.rate, self.step_no = params, rate, 0
        self.m = [np.zeros_like(p) for p in params]
        self.v = [np.zeros_like(p) for p in params]

    def step(self, grads):
        self.step_no += 1
        for p, g, m, v in zip(self.params, grads, self.m, self.v):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            mh = m / (1 - 0.9**self.step_no)
            vh = v / (1 - 0.999**self.step_no)
            p -= self.rate * mh / (np.sqrt(vh) + 1e-8)


# --- ONNX ---------------------------------------------------------------------------------------------------------------


def const(name, a):
    return numpy_helper.from_array(np.ascontiguousarray(a, dtype=np.float32), name)


def graph(name, nodes, inp, out, consts):
    """A checked model with one FP32 input and one FP32 output, given as (name, shape after the batch)."""

    def info(n, shape):
        return helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", *shape])

    g = helper.make_graph(nodes, name, [info(*inp)], [info(*out)], consts)
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], producer_name="make_models")
    m.ir_version = 8
    onnx.checker.check_model(m, full_check=True)
    return m.SerializeToString(deterministic=True)


def session(blob):
    o = ort.SessionOptions()
    o.intra_op_num_threads = 1
    o.inter_op_num_threads = 1
    return ort.InferenceSession(blob, o, providers=["CPUExecutionProvider"])


def run(blob, x):
    s = session(blob)
    return s.run(None, {s.get_inputs()[0].name: x})[0]


# --- fraud --------------------------------------------------------------------------------------------------------------

FEATURES = [
    "amount_log10", "hour", "weekend", "account_days_log10", "tx_last_hour", "tx_last_day", "amount_over_mean",
    "distance_km_log10", "new_device", "new_merchant", "merchant_risk", "card_present", "foreign", "failed_pins",
    "speed_kmh_log10", "minutes_since_last_log10",
]  # fmt: skip


def transactions(rng, n):
    """n card transactions and whether each is fraud. Fraud depends on single features and on how some meet."""
    f = {}
    f["amount_log10"] = rng.normal(1.5, 0.6, n)
    f["hour"] = rng.integers(0, 24, n).astype(float)
    f["weekend"] = (rng.random(n) < 2 / 7).astype(float)
    f["account_days_log10"] = rng.uniform(0, 3.6, n)
    f["tx_last_hour"] = rng.poisson(0.5, n).astype(float)
    f["tx_last_day"] = f["tx_last_hour"] + rng.poisson(3, n)
    f["amount_over_mean"] = np.exp(rng.normal(0, 0.7, n))
    f["distance_km_log10"] = rng.gamma(2, 0.5, n)
    f["new_device"] = (rng.random(n) < 0.15).astype(float)
    f["new_merchant"] = (rng.random(n) < 0.35).astype(float)
    f["merchant_risk"] = rng.beta(2, 6, n)
    f["card_present"] = (rng.random(n) < 0.55).astype(float)
    f["foreign"] = (rng.random(n) < 0.08).astype(float)
    f["failed_pins"] = rng.poisson(0.08, n).astype(float)
    f["speed_kmh_log10"] = rng.gamma(2, 0.4, n)
    f["minutes_since_last_log10"] = rng.uniform(0, 4, n)
    night = (f["hour"] < 6).astype(float)
    logit = (
        -6.2
        + 0.7 * f["amount_log10"]
        + 0.5 * f["tx_last_hour"]
        + 2.5 * f["merchant_risk"]
        + 0.9 * f["failed_pins"]
        - 0.4 * f["account_days_log10"]
        - 0.8 * f["card_present"]
        + 0.6 * f["new_merchant"]
        + 2.6 * f["new_device"] * f["foreign"]
        + 1.8 * night * (1 - f["card_present"])
        + 1.5 * (f["speed_kmh_log10"] > 1.6) * (f["minutes_since_last_log10"] < 1.5)
        + 1.2 * np.maximum(0, f["amount_over_mean"] - 2.5) * (1 + f["new_device"])
    )
    x = np.stack([f[k] for k in FEATURES], axis=1)
    return x, (rng.random(n) < sigmoid(logit)).astype(float)


def train_logistic(x, y):
    """Newton's method with a little weight decay."""
    xb = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    w = np.zeros(xb.shape[1])
    for _ in range(12):
        p = sigmoid(xb @ w)
        hess = (xb * (p * (1 - p))[:, None]).T @ xb + np.eye(len(w))
        w -= np.linalg.solve(hess, xb.T @ (p - y) + w)
    return w[:-1], w[-1]


def train_mlp(x, y, rng, sizes=(32, 16), epochs=30, batch=256):
    dims = [x.shape[1], *sizes, 1]
    ws = [rng.normal(0, math.sqrt(2 / a), (a, b)) for a, b in zip(dims, dims[1:])]
    bs = [np.zeros(b) for b in dims[1:]]
    opt = Adam(ws + bs, 2e-3)
    for epoch in range(epochs):
        opt.rate = 2e-3 * (1 - epoch / epochs)
        order = rng.permutation(len(x))
        for at in range(0, len(x) - batch + 1, batch):
            pick = order[at : at + batch]
            acts = [x[pick]]
            for w, b in zip(ws[:-1], bs[:-1]):
                acts.append(np.maximum(acts[-1] @ w + b, 0))
            d = (sigmoid(acts[-1] @ ws[-1] + bs[-1])[:, 0] - y[pick])[:, None] / batch
            gw, gb = [None] * 3, [None] * 3
            for i in (2, 1, 0):
                gw[i], gb[i] = acts[i].T @ d + 1e-4 * ws[i], d.sum(0)
                d = (d @ ws[i].T) * (acts[i] > 0)
            opt.step(gw + gb)
    return ws, bs


def make_fraud():
    """Version 1 is a logistic regression, version 2 a small network that also sees how features meet."""
    rng = np.random.default_rng(20261130)
    x, y = transactions(rng, 40000)
    tx, ty = transactions(rng, 20000)
    mean, inv = rounded(x.mean(0)), rounded(1 / x.std(0))
    sx = (x - mean) * inv
    scale = [const("MEAN", mean), const("INV_STD", inv)]
    head = [helper.make_node("Sub", ["INPUT", "MEAN"], ["centred"]), helper.make_node("Mul", ["centred", "INV_STD"], ["x"])]

    w, b = train_logistic(sx, y)
    v1 = graph(
        "fraud_v1",
        [*head, helper.make_node("MatMul", ["x", "W"], ["xw"]), helper.make_node("Add", ["xw", "B"], ["z"]),
         helper.make_node("Sigmoid", ["z"], ["SCORE"])],
        ("INPUT", [16]), ("SCORE", [1]), [*scale, const("W", rounded(w)[:, None]), const("B", rounded([b]))],
    )  # fmt: skip

    ws, bs = train_mlp(sx, y, rng)
    names = [("x", "h1"), ("r1", "h2"), ("r2", "z")]
    nodes = list(head)
    for i, (a, z) in enumerate(names, 1):
        nodes.append(helper.make_node("Gemm", [a, f"W{i}", f"B{i}"], [z]))
        nodes.append(helper.make_node("Relu", [z], [f"r{i}"]) if i < 3 else helper.make_node("Sigmoid", [z], ["SCORE"]))
    consts = [c for i in range(3) for c in (const(f"W{i + 1}", rounded(ws[i])), const(f"B{i + 1}", rounded(bs[i])))]
    v2 = graph("fraud_v2", nodes, ("INPUT", [16]), ("SCORE", [1]), [*scale, *consts])

    test = tx.astype(np.float32)
    quality = [auc(run(v, test)[:, 0].astype(float), ty) for v in (v1, v2)]
    print(f"fraud: {y.mean():.1%} fraud; AUC on unseen transactions: v1 {quality[0]:.3f}, v2 {quality[1]:.3f}")
    assert quality[0] > 0.75 and quality[1] > quality[0] + 0.01, quality

    # Goldens: ordinary transactions, the extremes a client may send, and a full batch.
    rows = test[:3]
    cases = []
    for version, blob in (("1", v1), ("2", v2)):
        for name, data in [
            ("one row", rows[:1]),
            ("three rows", rows),
            ("zeros", np.zeros((1, 16), np.float32)),
            ("far out", np.full((1, 16), 1e4, np.float32)),
        ]:
            cases.append(case(name, version, {"INPUT": ("FP32", data)}, {"SCORE": ("FP32", run(blob, data))}))
        x64 = lcg((64, 16), 64)
        cases.append(case("full batch", version, {"INPUT": ("FP32", x64, 64)}, {"SCORE": ("FP32", run(blob, x64))}))
    return {"fraud/1/model.onnx": v1, "fraud/2/model.onnx": v2, "fraud/golden.json": golden("fraud", cases)}


# --- cnn ----------------------------------------------------------------------------------------------------------------

PATTERNS = ["flat", "horizontal", "vertical", "rising", "falling", "checks", "disc", "ring", "gradient", "noise"]
SIDE = 224


def picture(rng, kind):
    """One 3x224x224 picture in [0, 1] of a pattern, in random colours, sizes and places, with some noise."""
    v, u = np.mgrid[0:SIDE, 0:SIDE].astype(np.float64)
    wave, phase = rng.uniform(14, 40), rng.uniform(0, 2 * np.pi)
    cx, cy = rng.uniform(70, 154, 2)
    r = np.hypot(u - cx, v - cy)
    size = rng.uniform(35, 65)
    shape = {
        "flat": lambda: np.zeros((SIDE, SIDE)),
        "horizontal": lambda: np.sin(2 * np.pi * v / wave + phase) > 0,
        "vertical": lambda: np.sin(2 * np.pi * u / wave + phase) > 0,
        "rising": lambda: np.sin(2 * np.pi * (u + v) / 1.41421356 / wave + phase) > 0,
        "falling": lambda: np.sin(2 * np.pi * (u - v) / 1.41421356 / wave + phase) > 0,
        "checks": lambda: (np.sin(2 * np.pi * u / wave + phase) > 0) ^ (np.sin(2 * np.pi * v / wave) > 0),
        "disc": lambda: r < size,
        "ring": lambda: np.abs(r - size) < 7,
        "gradient": lambda: np.clip((u * np.cos(phase) + v * np.sin(phase)) / SIDE * 0.7 + 0.5, 0, 1),
        "noise": lambda: rng.random((SIDE, SIDE)),
    }[kind]().astype(np.float64)
    a, b = rng.random(3) * 0.45, 0.55 + rng.random(3) * 0.45
    if rng.random() < 0.5:
        a, b = b, a
    img = a[:, None, None] + (b - a)[:, None, None] * shape
    return np.clip(img + rng.normal(0, 0.02, img.shape), 0, 1).astype(np.float32)


def first_filters(rng):
    """Twelve 7x7 filters on three colours: edges and bars in four directions, brightness, and three of chance."""
    v, u = np.mgrid[-3:4, -3:4].astype(np.float64)
    bell = np.exp(-(u * u + v * v) / 8)
    out = []
    for k in range(4):
        t = u * math.cos(k * math.pi / 4) + v * math.sin(k * math.pi / 4)
        for wave in (np.sin(t * 0.9), np.cos(t * 1.4)):
            g = bell * wave
            g -= g.mean()
            out.append(np.stack([g] * 3) / np.abs(g).sum() / 1.5)
    out.append(np.stack([bell] * 3) / bell.sum() / 3)
    for _ in range(3):
        g = rng.normal(0, 0.08, (3, 7, 7))
        out.append(g - g.mean())
    return np.stack(out)


def cnn_graph(params, head=None):
    n = helper.make_node
    nodes = [
        n("Conv", ["IMAGE", "K1", "C1"], ["a1"], kernel_shape=[7, 7], strides=[4, 4], pads=[3, 3, 3, 3]),
        n("Relu", ["a1"], ["r1"]),
        n("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        n("Conv", ["p1", "K2", "C2"], ["a2"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        n("Relu", ["a2"], ["r2"]),
        n("Conv", ["r2", "K3", "C3"], ["a3"], kernel_shape=[1, 1]),
        n("Relu", ["a3"], ["r3"]),
        n("GlobalAveragePool", ["r3"], ["g"]),
        n("Flatten", ["g"], ["f"], axis=1),
    ]
    consts = [const(k, v) for k, v in params.items()]
    if head is None:
        return graph("features", nodes, ("IMAGE", [3, SIDE, SIDE]), ("f", [48]), consts)
    nodes += [n("Gemm", ["f", "W", "B"], ["z"], transB=1), n("Softmax", ["z"], ["PROBS"], axis=1)]
    consts += [const("W", head[0]), const("B", head[1])]
    return graph("cnn", nodes, ("IMAGE", [3, SIDE, SIDE]), ("PROBS", [10]), consts)


def train_softmax(x, y, steps=1500):
    mean, std = x.mean(0), x.std(0) + 1e-3
    sx, hot = (x - mean) / std, np.eye(10)[y]
    w, b = np.zeros((10, x.shape[1])), np.zeros(10)
    opt = Adam([w, b], 0.03)
    for i in range(steps):
        opt.rate = 0.03 * (1 - i / steps)
        z = sx @ w.T + b
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        d = (p - hot) / len(x)
        opt.step([d.T @ sx + 1e-4 * w, d.sum(0)])
    w = w / std  # the scaling moves into the layer
    return rounded(w), rounded(b - w @ mean)


def make_cnn():
    """Fixed filters below, a trained layer on top; tells ten patterns apart."""
    rng = np.random.default_rng(224)
    params = {
        "K1": rounded(first_filters(rng)), "C1": rounded(rng.normal(0, 0.01, 12)),
        "K2": rounded(rng.normal(0, math.sqrt(2 / 108), (24, 12, 3, 3))), "C2": rounded(rng.normal(0, 0.02, 24)),
        "K3": rounded(rng.normal(0, math.sqrt(2 / 24), (48, 24, 1, 1))), "C3": rounded(rng.normal(0, 0.05, 48)),
    }  # fmt: skip
    features = session(cnn_graph(params))
    labels = np.arange(900) % 10
    x = np.concatenate([features.run(None, {"IMAGE": picture(rng, PATTERNS[k])[None]})[0] for k in labels]).astype(np.float64)
    train, test = slice(0, 700), slice(700, 900)
    # features are float32 from another library: quantised before training, so that its last bits do not matter
    x = np.round(x * 2**16) / 2**16
    w, b = train_softmax(x[train], labels[train])
    right = ((x[test] @ w.T + b).argmax(1) == labels[test]).mean()
    blob = cnn_graph(params, (w, b))
    print(f"cnn: {right:.1%} of unseen pictures right; {len(blob)} bytes")
    assert right > 0.85 and len(blob) < 200_000, right

    cases = []
    for name, shape, seed in [("one picture of noise", (1, 3, SIDE, SIDE), 1), ("two pictures of noise", (2, 3, SIDE, SIDE), 2)]:
        data = lcg(shape, seed)
        cases.append(case(name, "1", {"IMAGE": ("FP32", data, seed)}, {"PROBS": ("FP32", run(blob, data))}))
    for level in (0.0, 0.5, 1.0):
        data = np.full((1, 3, SIDE, SIDE), level, np.float32)
        cases.append(case(f"flat {level}", "1", {"IMAGE": ("FP32", data, None, level)}, {"PROBS": ("FP32", run(blob, data))}))
    return {"cnn/1/model.onnx": blob, "cnn/golden.json": golden("cnn", cases)}


# --- text ---------------------------------------------------------------------------------------------------------------

BUCKETS = 4096
SUBJECTS = "i we they you the team my boss our office her brother a friend your bank the shop the courier".split()
ORDINARY = (
    "meeting lunch tomorrow report review the draft please thanks see you at noon train late coffee weekend family photos "
    "agenda minutes budget question about code tests merged release notes dinner birthday school pick up kids garden book "
    "invoice attached as discussed regards call me when you are home project plan doctor appointment moved to friday"
).split()
SPAM = (
    "free winner prize claim now urgent limited offer cash bonus click link guaranteed cheap pills loan approved credit "
    "casino jackpot million dollars bitcoin double your money act today exclusive deal risk investment password expired "
    "verify account suspended gift card congratulations selected lottery unsubscribe 100 percent off"
).split()


def tokens_of(raw):
    """Lower-cases A-Z and cuts at every byte that is neither a letter, a digit nor beyond ASCII."""
    out, word = [], bytearray()
    for c in raw + b" ":
        if 65 <= c <= 90:
            c += 32
        if 97 <= c <= 122 or 48 <= c <= 57 or c >= 128:
            word.append(c)
        elif word:
            out.append(zlib.crc32(bytes(word)) % BUCKETS)
            word = bytearray()
    return out


def sentence(rng, spam):
    own, other = (SPAM, ORDINARY) if spam else (ORDINARY, SPAM)
    words = list(rng.choice(SUBJECTS, rng.integers(0, 3)))
    for _ in range(rng.integers(4, 14)):
        words.append(str(rng.choice(own if rng.random() < 0.75 else other)))
    return " ".join(words).encode()


def text_features(texts):
    x = np.zeros((len(texts), BUCKETS))
    for i, t in enumerate(texts):
        toks = tokens_of(t)
        for b in toks:
            x[i, b] += 1 / math.sqrt(len(toks))
    return x


def text_score(weights, bias, raw):
    toks = tokens_of(raw)
    z = bias + (sum(weights.get(b, 0.0) for b in toks) / math.sqrt(len(toks)) if toks else 0.0)
    return np.float32(1 / (1 + math.exp(-z)))


def make_text():
    """A linear layer on hashed words that tells spam from ordinary mail."""
    rng = np.random.default_rng(4096)
    label = np.arange(2400) % 2
    texts = [sentence(rng, bool(k)) for k in label]
    x = text_features(texts)
    used = np.flatnonzero(x.any(0))
    x = x[:, used]
    w, b = np.zeros(len(used)), np.zeros(1)
    opt = Adam([w, b], 0.05)
    train, test = slice(0, 1800), slice(1800, 2400)
    for _ in range(400):
        d = (sigmoid(x[train] @ w + b) - label[train]) / 1800
        opt.step([x[train].T @ d + 3e-4 * w, np.array([d.sum()])])
    weights = {int(k): float(v) for k, v in zip(used, rounded(w)) if v != 0}
    bias = float(rounded(b)[0])
    right = np.mean([(text_score(weights, bias, t) > 0.5) == bool(k) for t, k in zip(texts[test], label[test])])
    print(f"text: {right:.1%} of unseen sentences right; {len(weights)} weights")
    assert right > 0.9, right
    doc = {"buckets": BUCKETS, "hash": "crc32-ieee", "bias": bias, "weights": {str(k): v for k, v in sorted(weights.items())}}

    samples = [
        ("spam", "Congratulations WINNER! Claim your FREE prize now"),
        ("ordinary", "Lunch tomorrow? The meeting moved to Friday, see you at noon."),
        ("empty", ""),
        ("no words", " ... !? "),
        ("unknown words", "zyzzyva qwertz"),
        ("beyond ASCII", "Grüße aus Köln, 模型 prize"),
        ("repeated", "free " * 40),
    ]
    cases = [
        case(n, "1", {"TEXT": ("BYTES", np.array([[t]], object))},
             {"SCORE": ("FP32", np.array([[text_score(weights, bias, t.encode())]]))})
        for n, t in samples
    ]  # fmt: skip
    both = [samples[0][1], samples[1][1]]
    cases.append(case("two rows", "1", {"TEXT": ("BYTES", np.array([[t] for t in both], object))},
                      {"SCORE": ("FP32", np.array([[text_score(weights, bias, t.encode())] for t in both]))}))  # fmt: skip
    return {"text/1/weights.json": dump(doc, compact=True), "text/golden.json": golden("text", cases)}


# --- goldens ------------------------------------------------------------------------------------------------------------


def lcg(shape, seed):
    """Numbers in [0, 1) that any language makes alike: x' = 1664525 x + 1013904223 mod 2^32, value = (x' >> 8) / 2^24."""
    out, x = np.empty(math.prod(shape), np.float32), seed
    for i in range(out.size):
        x = (1664525 * x + 1013904223) & 0xFFFFFFFF
        out[i] = (x >> 8) / 16777216
    return out.reshape(shape)


def tensor(datatype, data, seed=None, level=None):
    t = {"datatype": datatype, "shape": list(data.shape)}
    if seed is not None:
        t["lcg"] = seed
    elif level is not None:
        t["constant"] = level
    elif datatype == "FP32":
        t["data"] = [float(np.format_float_positional(v, unique=True)) for v in data.ravel().astype(np.float32)]
    else:
        t["data"] = data.ravel().tolist()
    return t


def case(name, version, inputs, outputs):
    def side(ts):
        return {k: tensor(*v) for k, v in ts.items()}

    return {"name": name, "version": version, "inputs": side(inputs), "outputs": side(outputs)}


def golden(model, cases):
    return dump({"model": model, "cases": cases})


def dump(doc, compact=False):
    if compact:
        return (json.dumps(doc, separators=(",", ":"), ensure_ascii=False) + "\n").encode()
    text = "{\n" + f' "model": {json.dumps(doc["model"])},\n "cases": [\n'
    text += ",\n".join("  " + json.dumps(c, ensure_ascii=False) for c in doc["cases"])
    return (text + "\n ]\n}\n").encode()


# How far a number may be off on another machine: a weight may round to the next multiple, an answer move with it.
SLACK = 5e-3


def alike(name, have, fresh):
    """Whether two files say the same, up to what another machine's arithmetic may change."""
    if have == fresh:
        return True
    if not name.endswith(".onnx"):
        return close(json.loads(have), json.loads(fresh))
    a, b = onnx.load_from_string(have), onnx.load_from_string(fresh)
    weights = [{i.name: numpy_helper.to_array(i) for i in m.graph.initializer} for m in (a, b)]
    del a.graph.initializer[:], b.graph.initializer[:]
    same = all(k in weights[1] and v.shape == weights[1][k].shape and np.abs(v - weights[1][k]).max() < SLACK for k, v in weights[0].items())
    return same and len(weights[0]) == len(weights[1]) and a == b


def close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) < SLACK
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true", help="write nothing; fail when a file differs from a fresh run")
    check = p.parse_args().check
    files = {**make_fraud(), **make_cnn(), **make_text()}
    stale = []
    for name, blob in files.items():
        path = HERE / name
        if check:
            if not path.exists() or not alike(name, path.read_bytes(), blob):
                stale.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            f.write(blob)
        pathlib.Path(f.name).chmod(0o644)
        pathlib.Path(f.name).replace(path)
    if stale:
        sys.exit("differs from a fresh run: " + ", ".join(stale) + "; run triton-models/make_models.py")


if __name__ == "__main__":
    main()
