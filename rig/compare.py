"""Do the real Triton and the embedded server give the same answers through the gateway? Numbers within 1e-5; the same code and
reason for every case. Text of errors may differ. compare.py REAL.json EMBEDDED.json exits 1 where they do not agree."""

import json
import math
import pathlib
import sys

TOLERANCE = 1e-5


def near(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= TOLERANCE


def differences(real, embedded):
    """One line per case that differs, or that only one of them has."""
    one, two = (json.loads(pathlib.Path(p).read_text()) for p in (real, embedded))
    out = []
    for table in ("outcomes", "numbers"):
        a, b = one[table], two[table]
        out += [f"{k}: only the real one has it" for k in sorted(a.keys() - b.keys())]
        out += [f"{k}: only the embedded one has it" for k in sorted(b.keys() - a.keys())]
        for k in sorted(a.keys() & b.keys()):
            x, y = a[k], b[k]
            if table == "outcomes":
                if (x["code"], x["reason"]) != (y["code"], y["reason"]):
                    out.append(f"{k}: real {x['code']} {x['reason']} ({x['message'][:120]}), embedded {y['code']} {y['reason']} ({y['message'][:120]})")
            elif x["shape"] != y["shape"]:
                out.append(f"{k}: shapes {x['shape']} and {y['shape']}")
            elif not all(map(near, x["data"], y["data"])):
                worst = next((p, q) for p, q in zip(x["data"], y["data"]) if not near(p, q))
                out.append(f"{k}: real {worst[0]}, embedded {worst[1]}")
    if not one["outcomes"] or not one["numbers"]:
        out.append("nothing was recorded")
    return out


if __name__ == "__main__":
    lines = differences(*sys.argv[1:3])
    print("\n".join(lines) or "they agree")
    sys.exit(1 if lines else 0)
