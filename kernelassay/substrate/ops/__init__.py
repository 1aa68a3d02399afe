"""The op library: each module registers lowerings with ``@lowers``; every module here is loaded."""
