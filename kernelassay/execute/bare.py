"""torch as a process needs it whose forks own a GPU: nothing may have started CUDA in it.

CUDA does not survive a fork: not a look for devices may start it here, and not fake tensors, which
see to it that a guard is set that machines without a GPU need.
"""

from __future__ import annotations

import os
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

import torch

torch._C._ensureCUDADeviceGuardSet = lambda: None
warnings.filterwarnings("ignore", category=FutureWarning)
torch.set_num_threads(1)
