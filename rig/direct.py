"""Compares two servers of Triton's protocol without a gateway, over the rows of the table of bad inputs that need none.

    rig/run.sh direct          starts both and writes the report to .cache/rig/results/direct.md
    direct.py REAL OTHER FILE  compares two that run

Codes must agree; messages are reported where they differ, once numbers that depend on the run are cut out."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "e2e"))

import bad_inputs  # noqa: E402
import calls  # noqa: E402


def plain(message):
    message = message.split("\n")[0]
    return re.sub(r"\[request id: [^\]]*\] ", "", message)


def compare(real, other, path):
    a, b = calls.Client(real), calls.Client(other)
    codes, texts = [], []
    for name, call, _, _ in bad_inputs.V2:
        one, two = call(a), call(b)
        if one.code != two.code:
            codes.append((name, f"{one.code}: {one.message}", f"{two.code}: {two.message}"))
        elif plain(one.message) != plain(two.message):
            texts.append((name, one.message, two.message))
    lines = ["# Bad inputs: real Triton against the embedded server, without a gateway", ""]
    for title, rows in (("Codes that differ", codes), ("Messages that differ", texts)):
        lines += [f"## {title}: {len(rows)} of {len(bad_inputs.V2)}", ""]
        lines += [f"- **{n}**\n  - real: `{x.splitlines()[0] if x else ''}`\n  - embedded: `{y.splitlines()[0] if y else ''}`" for n, x, y in rows]
        lines.append("")
    pathlib.Path(path).write_text("\n".join(lines))
    print(f"{len(bad_inputs.V2)} bad inputs: {len(codes)} codes and {len(texts)} messages differ; see {path}")
    return len(codes)


if __name__ == "__main__":
    sys.exit(1 if compare(*sys.argv[1:4]) else 0)
