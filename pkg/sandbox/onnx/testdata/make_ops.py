"""Makes ops.json: small models of one to three operators each, inputs for them, and what onnxruntime answers.

    python make_ops.py > ops.json      (needs onnx, onnxruntime, numpy)

The tests of package onnx compare its evaluator with these answers. The "refused" models are valid ONNX that the
evaluator must refuse by name.
"""

import base64
import json
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(11)


def rand(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes, inputs, outputs, consts, opset=17):
    info = lambda kv: helper.make_tensor_value_info(kv[0], TensorProto.FLOAT, kv[1])
    g = helper.make_graph(
        nodes, "g", [info(i) for i in inputs.items()], [info(o) for o in outputs.items()],
        [numpy_helper.from_array(v, k) for k, v in consts.items()])
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)])
    m.ir_version = 8
    return m.SerializeToString()


def number(a):
    return {"shape": list(a.shape), "data": [float(str(v)) for v in a.ravel()]}


CASES, REFUSED = [], []


def case(name, op, feeds, consts=None, shape=None, **attrs):
    """One node; its inputs are the feeds, then the constants."""
    consts = consts or {}
    node = helper.make_node(op, [*feeds, *consts], ["Y"], **attrs)
    rank = {k: ["d%d%s" % (i, k) for i in range(v.ndim)] for k, v in feeds.items()}
    blob = model([node], rank, {"Y": shape or None}, consts)
    keep(name, blob, feeds)


def keep(name, blob, feeds):
    session = ort.InferenceSession(blob, providers=["CPUExecutionProvider"])
    outs = [o.name for o in session.get_outputs()]
    got = dict(zip(outs, session.run(outs, feeds)))
    CASES.append({
        "name": name, "model": base64.b64encode(blob).decode(),
        "inputs": {k: number(v) for k, v in feeds.items()}, "outputs": {k: number(v) for k, v in got.items()}})


def refused(name, names, nodes, inputs, consts=None, outputs=("Y",), opset=17):
    blob = model(nodes, inputs, {o: None for o in outputs}, consts or {}, opset)
    REFUSED.append({"name": name, "names": names, "model": base64.b64encode(blob).decode()})


def node(op, *ins, **attrs):
    return helper.make_node(op, list(ins), ["Y"], **attrs)


def elementwise():
    for op in ("Add", "Sub", "Mul", "Div"):
        case(f"{op} same shape", op, {"A": rand(3, 4), "B": rand(3, 4) + 5})
    case("Add scalar", "Add", {"A": rand(3, 4), "B": rand(1)})
    case("Add rank 0", "Add", {"A": rand(3, 4)}, {"B": np.array(2.5, np.float32)})
    case("Add row", "Add", {"A": rand(3, 4), "B": rand(4)})
    case("Add column", "Add", {"A": rand(3, 4), "B": rand(3, 1)})
    case("Sub small minus large", "Sub", {"A": rand(4), "B": rand(2, 3, 4)})
    case("Mul both grow", "Mul", {"A": rand(3, 1, 4), "B": rand(2, 1)})
    case("Mul channels", "Mul", {"A": rand(2, 3, 4, 5)}, {"B": rand(3, 1, 1)})
    case("Div nothing", "Div", {"A": rand(0, 4), "B": rand(4)})
    for op in ("Relu", "Sigmoid", "Tanh", "Identity"):
        case(op, op, {"A": np.array([[-40, -1.5, -0.0, 0.3, 2, 90]], np.float32)})
    case("Cast float to float", "Cast", {"A": rand(2, 3)}, to=TensorProto.FLOAT)


def shapes():
    for axis in (0, 1, 2, 3, -1):
        case(f"Flatten axis {axis}", "Flatten", {"A": rand(2, 3, 4)}, axis=axis)
    for want in ([2, 12], [-1, 6], [0, -1], [4, 0, 2], [2, 3, 4, 1]):
        if want != [4, 0, 2]:
            case(f"Reshape {want}", "Reshape", {"A": rand(2, 3, 4)}, {"S": np.array(want, np.int64)})
    for axis in (-1, 0, 1, 2):
        case(f"Softmax axis {axis}", "Softmax", {"A": rand(2, 3, 4) * 20}, axis=axis)
    case("Softmax default", "Softmax", {"A": rand(3, 5)})


def matrices():
    case("MatMul", "MatMul", {"A": rand(3, 5), "B": rand(5, 7)})
    case("MatMul column", "MatMul", {"A": rand(3, 9)}, {"B": rand(9, 1)})
    case("MatMul batched", "MatMul", {"A": rand(2, 3, 4), "B": rand(4, 6)})
    case("MatMul wide", "MatMul", {"A": rand(4, 33), "B": rand(33, 17)})
    case("Gemm", "Gemm", {"A": rand(3, 4), "B": rand(4, 5)})
    case("Gemm bias", "Gemm", {"A": rand(3, 4)}, {"B": rand(4, 5), "C": rand(5)})
    case("Gemm bias column", "Gemm", {"A": rand(3, 4)}, {"B": rand(4, 5), "C": rand(3, 1)})
    case("Gemm bias scalar", "Gemm", {"A": rand(3, 4)}, {"B": rand(4, 5), "C": np.array(0.5, np.float32)})
    case("Gemm transB", "Gemm", {"A": rand(3, 4)}, {"B": rand(5, 4), "C": rand(5)}, transB=1)
    case("Gemm transA alpha beta", "Gemm", {"A": rand(4, 3)}, {"B": rand(4, 5), "C": rand(3, 5)}, transA=1, alpha=0.5, beta=-2.0)


def windows():
    conv = lambda name, x, w, b=None, **kw: case(f"Conv {name}", "Conv", {"X": x}, {"W": w} if b is None else {"W": w, "B": b}, **kw)
    conv("1x1", rand(1, 3, 5, 6), rand(4, 3, 1, 1), rand(4))
    conv("3x3 pad 1", rand(2, 3, 7, 6), rand(5, 3, 3, 3), rand(5), pads=[1, 1, 1, 1])
    conv("3x3 no pad no bias", rand(1, 2, 6, 6), rand(3, 2, 3, 3))
    conv("stride 2", rand(2, 3, 9, 8), rand(4, 3, 3, 3), rand(4), strides=[2, 2], pads=[1, 1, 1, 1])
    conv("stride 3 2 uneven pads", rand(1, 2, 11, 9), rand(3, 2, 5, 3), strides=[3, 2], pads=[2, 0, 1, 1], kernel_shape=[5, 3])
    conv("groups", rand(2, 6, 5, 5), rand(4, 3, 3, 3), rand(4), group=2, pads=[1, 1, 1, 1])
    conv("depthwise", rand(1, 4, 6, 7), rand(4, 1, 3, 3), rand(4), group=4)
    conv("pads wider than the image", rand(1, 1, 2, 2), rand(2, 1, 3, 3), pads=[4, 5, 4, 5])
    conv("valid", rand(1, 2, 6, 5), rand(2, 2, 2, 3), auto_pad="VALID")
    conv("large window", rand(1, 3, 40, 41), rand(8, 3, 7, 7), rand(8), strides=[2, 2], pads=[3, 3, 3, 3])
    for op in ("MaxPool", "AveragePool"):
        case(f"{op} 2x2", op, {"X": rand(2, 3, 6, 8)}, kernel_shape=[2, 2], strides=[2, 2])
        case(f"{op} 3x3 stride 1", op, {"X": rand(1, 2, 5, 6)}, kernel_shape=[3, 3])
        case(f"{op} pads", op, {"X": rand(1, 2, 7, 7)}, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        case(f"{op} uneven", op, {"X": rand(1, 2, 7, 9)}, kernel_shape=[3, 2], strides=[2, 3], pads=[0, 1, 2, 0])
    case("AveragePool counting pads", "AveragePool", {"X": rand(1, 2, 5, 5)}, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    case("GlobalAveragePool", "GlobalAveragePool", {"X": rand(2, 3, 5, 4)})


def graphs():
    h = helper.make_node
    x = {"X": rand(2, 6)}
    # A value that is read twice, and an output in the middle, must not be overwritten in place.
    keep("reused values", model(
        [h("Add", ["X", "B"], ["a"]), h("Relu", ["a"], ["b"]), h("Reshape", ["b", "S"], ["c"]), h("Tanh", ["c"], ["d"]),
         h("Add", ["b", "a"], ["e"]), h("Sigmoid", ["e"], ["f"]), h("Flatten", ["d"], ["g"]), h("Add", ["g", "f"], ["Y"]),
         h("Mul", ["e", "e"], ["Z"])],
        {"X": ["N", 6]}, {"Y": ["N", 6], "b": ["N", 6], "Z": ["N", 6]}, {"B": rand(6), "S": np.array([-1, 3, 2], np.int64)}), x)
    keep("constant node", model(
        [h("Constant", [], ["C"], value=numpy_helper.from_array(rand(6), "c")), h("Sub", ["X", "C"], ["Y"])],
        {"X": ["N", 6]}, {"Y": ["N", 6]}, {}), x)
    keep("two inputs", model([h("Mul", ["X", "X2"], ["Y"])], {"X": ["N", 6], "X2": [6]}, {"Y": ["N", 6]}, {}), {**x, "X2": rand(6)})


def refusals():
    image = {"X": ["N", 2, "H", "W"]}
    refused("an unknown operator", "operator Erf", [node("Erf", "X")], {"X": ["N"]})
    refused("a dilated convolution", "dilations", [node("Conv", "X", "W", dilations=[2, 2])], image, {"W": rand(2, 2, 3, 3)})
    refused("automatic padding", "auto_pad", [node("Conv", "X", "W", auto_pad="SAME_UPPER")], image, {"W": rand(2, 2, 3, 3)})
    refused("a one-dimensional convolution", "kernel_shape", [node("Conv", "X", "W", kernel_shape=[3])], {"X": ["N", 2, "L"]}, {"W": rand(2, 2, 3)})
    refused("rounding up", "ceil_mode", [node("MaxPool", "X", kernel_shape=[2, 2], ceil_mode=1)], image)
    refused("a cast to integers and back", "to=7", [helper.make_node("Cast", ["X"], ["i"], to=7), node("Cast", "i", to=1)], {"X": ["N"]})
    refused("a computed shape", "shape", [helper.make_node("Shape", ["X"], ["s"]), node("Reshape", "X", "s")], {"X": ["N"]})
    refused("allowzero", "allowzero", [node("Reshape", "X", "S", allowzero=1)], {"X": ["N"]}, {"S": np.array([-1], np.int64)})
    refused("a second output", "outputs", [helper.make_node("MaxPool", ["X"], ["Y", "I"], kernel_shape=[2, 2])], image)
    refused("an old opset", "opset 9", [node("Relu", "X")], {"X": ["N"]}, opset=9)
    refused("weights of doubles", "element type 11", [helper.make_node("Cast", ["B"], ["b"], to=1), node("Add", "X", "b")], {"X": ["N"]}, {"B": np.ones(3)})


if __name__ == "__main__":
    for make in (elementwise, shapes, matrices, windows, graphs, refusals):
        make()
    line = lambda rows: ",\n".join(json.dumps(r) for r in rows)
    sys.stdout.write('{"cases": [\n%s\n],\n"refused": [\n%s\n]}\n' % (line(CASES), line(REFUSED)))
