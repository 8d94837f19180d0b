"""The real tritonserver of the nvidia-pytriton wheel, on CPU, with our onnxruntime backend beside its Python backend."""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading

from procs import CACHE, RIG, ROOT, Failed, Proc, free_ports

MODELS = ROOT / "triton-models"
# Names of headers that models get to see as parameters; tests read them back through the model echo.
FORWARD = "(x-request-id|x-trace-id|x-user-id|x-user-type|x-api-key|authorization|traceparent|tracestate|baggage|sig-bin|x-test-.*)"
FLAGS = ["--model-control-mode=explicit", "--load-model=*", "--strict-readiness=false", f"--grpc-header-forward-pattern={FORWARD}"]


def backends():
    """Lays a backend folder out and returns it. The stub of the running interpreter's version goes beside the backend."""
    site = site_packages()
    triton = site / "pytriton" / "tritonserver"
    version = "%d.%d" % sys.version_info[:2]
    stub = triton / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        have = sorted(p.name for p in stub.parent.parent.iterdir())
        raise Failed(f"Triton's wheel has no Python stub for {version}, only for {have}; set PYTHON and run rig/setup.sh again")
    new = pathlib.Path(tempfile.mkdtemp(prefix="backends-", dir=RIG))
    shutil.copytree(triton / "backends" / "python", new / "python")
    shutil.copy(stub, new / "python")
    shutil.copytree(ROOT / "rig" / "backends" / "onnxruntime", new / "onnxruntime", ignore=shutil.ignore_patterns("__pycache__"))
    new.chmod(0o755)
    return new


def site_packages():
    return next(p for p in map(pathlib.Path, sys.path) if (p / "pytriton" / "tritonserver").is_dir())


def command(folder, models, ports, flags):
    """(argv, env) of a tritonserver with the backends in folder."""
    g, h, m = ports
    site = site_packages()
    triton = site / "pytriton" / "tritonserver"
    env = {
        **os.environ,
        # The stub's interpreter finds the virtual environment only by the python that is first in PATH.
        "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": str(site),
        "LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    argv = [
        triton / "bin" / "tritonserver", f"--model-repository={models}",
        f"--backend-directory={folder}", f"--cache-directory={triton / 'caches'}",
        "--grpc-address=127.0.0.1", "--http-address=127.0.0.1", "--metrics-address=127.0.0.1",
        f"--grpc-port={g}", f"--http-port={h}", f"--metrics-port={m}", *flags,
    ]  # fmt: skip
    return argv, env


class Triton(Proc):
    """A running Triton. Addresses: grpc, http, metrics as host:port. Use as a context; ready when constructed."""

    def __init__(self, models=MODELS, ports=None, flags=FLAGS, log=None, seconds=120):
        g, h, m = ports or free_ports(3)
        self.grpc, self.http, self.metrics = (f"127.0.0.1:{p}" for p in (g, h, m))
        self.folder = backends()
        argv, env = command(self.folder, models, (g, h, m), flags)
        # On a starved machine it may crash while its Python models start (boost: lock_exception), before anything is tested.
        for tries_left in (2, 1, 0):
            super().__init__("tritonserver", argv, log or RIG / "logs" / f"triton-{g}.log", env)
            try:
                self.wait_http(f"http://{self.http}/v2/health/ready", seconds)
                return
            except BaseException as e:
                if isinstance(e, Failed) and (self.p.returncode or 0) <= 0 and tries_left:  # a crash, or it hangs
                    super().stop()
                    continue
                self.stop()
                raise

    def stop(self, seconds=30):
        code = super().stop(seconds)
        shutil.rmtree(self.folder, ignore_errors=True)
        return code


def become(a):
    """Ends as tritonserver itself, so that whoever has started this has its process."""
    if not a.exec.exists():
        try:
            backends().rename(a.exec)
        except OSError:
            if not a.exec.exists():  # another has been faster
                raise
    argv, env = command(a.exec, a.models, (a.grpc, a.http, a.metrics), a.flags)
    argv = [str(part) for part in argv]
    os.execve(argv[0], argv, env)


def main():
    p = argparse.ArgumentParser(prog="rig/triton.sh", description=__doc__)
    p.add_argument("--models", type=pathlib.Path, default=MODELS, help="model repository (default: triton-models)")
    p.add_argument("--grpc", type=int, default=8001, help="port for gRPC; 0 takes a free one (default: 8001)")
    p.add_argument("--http", type=int, default=8000, help="port for HTTP (default: 8000)")
    p.add_argument("--metrics", type=int, default=8002, help="port for metrics (default: 8002)")
    p.add_argument("--exec", type=pathlib.Path, metavar="DIR", help="become tritonserver, with only the flags given and backends in DIR, laid out there once")
    p.add_argument("flags", nargs="*", help="further flags for tritonserver, after --")
    a = p.parse_args()
    if a.exec:
        become(a)
    ports = [want or free for want, free in zip((a.grpc, a.http, a.metrics), free_ports(3))]
    ended = threading.Event()
    for s in (signal.SIGINT, signal.SIGTERM):
        signal.signal(s, lambda *_: ended.set())
    try:
        with Triton(a.models, ports, [*FLAGS, *a.flags]) as t:
            print(f"Triton serves {a.models}\n  gRPC    {t.grpc}\n  HTTP    http://{t.http}\n  metrics http://{t.metrics}/metrics")
            print(f"  log     {t.log.relative_to(ROOT)}\nCtrl-C stops it.", flush=True)
            while not ended.wait(1):
                if t.p.poll() is not None:
                    raise Failed(f"tritonserver ended with {t.p.returncode}:\n{t.tail()}")
            print("stopping", flush=True)
    except Failed as e:
        sys.exit(f"rig/triton.sh: {e}")


if __name__ == "__main__":
    CACHE.mkdir(exist_ok=True)
    main()
