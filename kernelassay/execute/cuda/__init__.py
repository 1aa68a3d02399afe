"""The CUDA executor: kernels compiled by NVRTC for a device."""
