"""The peers of ``peers.cu``, built with nvcc when the benchmark starts."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path


def build() -> ctypes.CDLL:
    """The peers as a loaded library. Raises ``RuntimeError`` where there is no nvcc, or it fails."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    folder = Path(tempfile.mkdtemp(prefix="kvspec-bench-"))
    library = folder / "peers.so"
    stubs = Path(nvcc).resolve().parent.parent / "lib64" / "stubs"
    command = [nvcc, "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC", f"-L{stubs}", "-o", str(library)]
    try:
        done = subprocess.run([*command, str(Path(__file__).with_name("peers.cu")), "-lcuda"], capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(f"the peers need nvcc: {error}") from error
    if done.returncode:
        raise RuntimeError(f"nvcc failed on the peers:\n{done.stderr}")
    peers = ctypes.CDLL(str(library))
    p, i, n = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    peers.copy_per_page.argtypes = [p, p, p, i, n, p]
    peers.copy_batched.argtypes = [p, p, p, i, n, p]
    peers.copy_kernel.argtypes = [p, p, p, i, n, i, p]
    peers.publish_per_row.argtypes = [p, p, p, p, p, i, i, i, i, p]
    peers.publish_whole.argtypes = [p, p, p, p, i, i, i, p]
    peers.fetch_by_host.argtypes = [*11 * [p], i, i, i, i, n, ctypes.c_int64, p]
    shutil.rmtree(folder)
    return peers
