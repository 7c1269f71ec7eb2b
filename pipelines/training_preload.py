"""What the server that trainings are forked from imports once, before any of them begins: import it for that alone.

The server must stay a good parent: no threads (a fork copies only one), no CUDA context, nothing random, and no
simulator. Names no training and starts none; see `training_worker.py`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal

# A server that is still importing does not see its main process end: the kernel tells it (PR_SET_PDEATHSIG).
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle, also while this imports
# OpenBLAS and Arrow's allocator start threads when they are imported; asking CUDA for its devices would spoil it for
# the children, asking the driver's library does not.
_ALONE = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
_BEFORE = {name: os.environ.get(name) for name in _ALONE}
os.environ.update(_ALONE)

import av  # noqa: E402, F401
import torch  # noqa: E402
import torch.utils.checkpoint  # noqa: E402, F401
from lerobot.policies import factory  # noqa: E402, F401

from robocoach.datasets import frames, mixture  # noqa: E402, F401
from robocoach.pipelines import training_job  # noqa: E402, F401
from robocoach.policies import nano, train  # noqa: E402, F401
from robocoach.sim import tasks  # noqa: E402, F401

for _name, _value in _BEFORE.items():
    if _value is None:
        os.environ.pop(_name)
    else:
        os.environ[_name] = _value
gc.collect()
gc.freeze()  # what was imported is shared: the children's collector does not touch, and so not copy, its pages
