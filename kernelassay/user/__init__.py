"""Kernels of the user's own: reading, binding, and standing in for a whole forward."""
