"""What makes training fast on this machine's processor: threads, arithmetic, and an allocator that keeps its memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> None:
    """Tells glibc to reuse large freed blocks instead of returning them to the system.

    A training step frees and asks for the same large tensors again and again; by default each is mapped anew and
    every page of it faults, which made element-wise operations up to three times slower (measured). No effect where
    the C library is another one.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
        libc.mallopt(_M_TOP_PAD, 64 << 20)
    except (OSError, AttributeError):
        return


def set_threads(threads: int) -> int:
    """Sets PyTorch's threads; 0 takes all cores this process may use. Returns the number."""
    count = threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(count)
    return count


def has_fast_bf16(device_type: str) -> bool:
    """Whether bfloat16 products are faster than float32 ones there."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported()
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def cpu_name() -> str:
    """Model name of the processor, as Linux gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
