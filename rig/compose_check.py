"""Checks Dockerfile and docker-compose.yml where no Docker engine is: both are parsed and held against what they must say, the
image's build command is run on the files that the build context would have, and each service's command line is run against the
real binaries, with ports of its own."""

import base64
import fnmatch
import json
import os
import pathlib
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
import urllib.request
import zlib

import yaml
from compose_spec import ComposeSpecification
from dockerfile_parse import DockerfileParser

from procs import RIG, ROOT, Failed, Proc, free_ports
from triton import Triton

MOST_BYTES = 28 * 1000 * 1000  # of the image
USER = 65532

# What the users' own compose file says; only build context, model folder and the folder of scripts are ours.
TRITON_COMMAND = [
    "tritonserver", "--model-repository=/models", "--strict-model-config=false", "--log-verbose=1",
    "--grpc-infer-allocation-pool-size=16", "--cuda-memory-pool-byte-size=0:536870912",
]  # fmt: skip
EXPECTED = {
    "triton-server": {
        "image": "nvcr.io/nvidia/tritonserver:23.10-py3", "ports": ["8000:8000", "8001:8001", "8002:8002"],
        "volumes": ["./triton-models:/models"],
    },
    "model-gateway": {
        "build": ".", "ports": ["8080:8080"], "environment": ["TRITON_GRPC_HOST=triton-server:8001"], "depends_on": ["triton-server"],
        "volumes": ["./scripts/lua:/scripts/lua:ro"],
    },
    "redis": {"ports": ["6379:6379"]},
}  # fmt: skip


def compose():
    text = (ROOT / "docker-compose.yml").read_text()
    doc = yaml.safe_load(text)
    ComposeSpecification.model_validate(doc)  # raises when it is no compose file
    for service, wanted in EXPECTED.items():
        have = doc["services"].get(service, {})
        for key, value in wanted.items():
            if have.get(key) != value:
                raise Failed(f"docker-compose.yml: {service}.{key} is {have.get(key)!r}, must be {value!r}")
    if shlex.split(doc["services"]["triton-server"]["command"]) != TRITON_COMMAND:
        raise Failed("docker-compose.yml: the command of triton-server differs from the users' own")
    return doc["services"]


def dockerfile():
    """The arguments of the build command, after holding the file against what it must say."""
    with tempfile.TemporaryDirectory() as folder:
        parser = DockerfileParser(path=folder)
        parser.content = (ROOT / "Dockerfile").read_text()
        lines = [(s["instruction"], s["value"]) for s in parser.structure if s["instruction"] != "COMMENT"]
    froms = [i for i, (name, _) in enumerate(lines) if name == "FROM"]
    final = lines[froms[-1] :]
    last = dict(final)
    for name, value in {
        "FROM": "scratch", "USER": f"{USER}:{USER}", "EXPOSE": "8080 8081", "ENTRYPOINT": '["/gateway"]', "CMD": '["serve"]',
    }.items():  # fmt: skip
        if last.get(name) != value:
            raise Failed(f"Dockerfile: {name} is {last.get(name)!r}, must be {value!r}")
    if any(name in ("RUN", "ADD") for name, _ in final):
        raise Failed("Dockerfile: the final image has nothing to RUN with and ADDs nothing")
    if not lines[0][1].startswith("golang:1.26"):
        raise Failed("Dockerfile: the builder must be golang:1.26, as go.mod asks for")
    builds = [value for name, value in lines if name == "RUN" and "go build" in value]
    if len(builds) != 1:
        raise Failed("Dockerfile: exactly one RUN must build the gateway")
    return builds[0]


def ignored(path, patterns):
    """Whether .dockerignore leaves path out: a pattern matches it or one of its folders; ** stands for any folders."""
    parts = path.split("/")
    for pattern in patterns:
        if pattern.startswith("**/"):
            if any(fnmatch.fnmatchcase(p, pattern[3:]) for p in parts):
                return True
        elif any(fnmatch.fnmatchcase("/".join(parts[:i]), pattern) for i in range(1, len(parts) + 1)):
            return True
    return False


def context(folder):
    """Copies what `docker build .` would send."""
    patterns = [p for p in (ROOT / ".dockerignore").read_text().split("\n") if p and not p.startswith("#")]
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, timeout=60
    ).stdout.decode()
    for name in filter(None, files.split("\0")):
        if not ignored(name, patterns) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def build(command, folder):
    """Runs the image's build command on the context; gives the binary."""
    source, out = folder / "src", folder / "gateway"
    source.mkdir()
    context(source)
    if " -o /gateway " not in command:
        raise Failed("Dockerfile: the build must write /gateway")
    command = command.replace(" -o /gateway ", f" -o {shlex.quote(str(out))} ")
    env = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"}
    p = subprocess.run(["sh", "-c", command], cwd=source, env=env, capture_output=True, text=True, timeout=900)
    if p.returncode:
        raise Failed(f"the image's build command failed:\n{p.stderr[-2000:]}")
    out.chmod(0o755)
    folder.chmod(0o755)
    return out


def static(path):
    """Whether an ELF file needs no dynamic loader: it has no PT_INTERP."""
    blob = path.read_bytes()[:4096]
    if blob[:5] != b"\x7fELF\x02":
        return False
    offset, size, count = struct.unpack_from("<Q", blob, 32)[0], *struct.unpack_from("<HH", blob, 54)
    return all(struct.unpack_from("<I", blob, offset + i * size)[0] != 3 for i in range(count))


def post(address, doc):
    """The answer to a prediction, and the target that gave it."""
    r = urllib.request.Request(f"http://{address}/v1/predict", json.dumps(doc).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=30) as answer:
        return json.load(answer), answer.headers.get("x-gateway-target")


def fraud(user):
    return {"model_name": "fraud", "input_tensor": base64.b64encode(bytes(64)).decode(), "metadata": {"user_id": user}}


def scripts(data, folder, tally):
    """The users' script, dropped into the mounted folder while the gateway serves, then changed."""
    users = [f"u{i}" for i in range(1, 41)]
    _, target = post(data, fraud("u3"))
    tally.add("compose: without a script the newest version of fraud answers", target == "model_v2", str(target))
    shutil.copyfile(ROOT / "scripts/lua/canary.lua", folder / "fraud.lua")
    wanted = {u: "model_v2" if zlib.crc32(u.encode()) % 100 < 10 else "model_v1" for u in users}
    seen = until(lambda: {u: post(data, fraud(u))[1] for u in users}, wanted)
    tally.add("compose: the users' script decides once it is dropped into the folder", seen == wanted, "model_v2 for " + " ".join(u for u in users if seen[u] == "model_v2"))
    (folder / "fraud.lua").write_text('return "model_v2"\n')
    seen = until(lambda: post(data, fraud("u1"))[1], "model_v2")
    tally.add("compose: a script that is changed decides at once", seen == "model_v2", str(seen))
    (folder / "fraud.lua").write_text('return "model_v1" end\n')
    time.sleep(2)
    _, seen = post(data, fraud("u1"))
    tally.add("compose: of a script that is broken the last good version stays", seen == "model_v2", str(seen))


def until(ask, wanted, seconds=10):
    """What ask gives, as soon as that is what is wanted, or at the end."""
    end = time.monotonic() + seconds
    while (seen := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.2)
    return seen


def start(services, binary, folder, tally):
    """Runs the services' command lines: Triton with exactly its flags, the gateway with exactly its environment, as its user."""
    command = shlex.split(services["triton-server"]["command"])
    mount = services["triton-server"]["volumes"][0].split(":")[0]
    flags = [f for f in command[1:] if not f.startswith("--model-repository=")]
    with Triton(models=ROOT / mount, flags=flags, log=RIG / "logs/compose-triton.log") as t:
        tally.add("compose: tritonserver serves the models with the users' flags", True)
        data, admin = (f"127.0.0.1:{p}" for p in free_ports(2))
        env = dict(e.split("=", 1) for e in services["model-gateway"]["environment"])
        env = {k: v.replace("triton-server:8001", t.grpc) for k, v in env.items()}
        env |= {"GATEWAY_DATA": data, "GATEWAY_ADMIN": admin, "GATEWAY_DRAIN_BEFORE": "0s"}
        argv = [binary, "serve"]
        # The image's working directory is /, where the volume is mounted; a folder of our own stands for it.
        inside = services["model-gateway"]["volumes"][0].split(":")[1]
        mounted = folder / inside.lstrip("/")
        mounted.mkdir(parents=True)
        if os.getuid() == 0 and shutil.which("setpriv"):
            argv = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *argv]
            env["PATH"] = os.environ["PATH"]
        with Proc("gateway of the image", argv, RIG / "logs/compose-gateway.log", env, cwd=folder) as g:
            g.wait_http(f"http://{data}/readyz", 30)
            answer, _ = post(data, {"model_name": "fraud", "input_tensor": base64.b64encode(bytes(64)).decode()})
            tally.add("compose: the gateway answers with nothing but TRITON_GRPC_HOST", answer.get("status") == "OK", json.dumps(answer))
            scripts(data, mounted, tally)
            code = g.stop()
            tally.add("compose: the gateway ends with 0 on SIGTERM", code == 0, f"exit {code}")


def run(tally, _gateway=None):
    services = compose()
    tally.add("compose: docker-compose.yml is valid and says what the users' does", True)
    command = dockerfile()
    tally.add("compose: Dockerfile says what it must", True)
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        binary = build(command, pathlib.Path(folder))
        size = binary.stat().st_size
        tally.add("compose: the image's binary is static", static(binary))
        tally.add("compose: the image fits", size <= MOST_BYTES, f"{size / 1e6:.1f} MB of at most {MOST_BYTES / 1e6:.0f} MB")
        start(services, binary, pathlib.Path(folder) / "root", tally)
