"""Is this kernel right? One candidate, judged against a problem's reference.

The problem and its references live in one process (:mod:`referee`), the candidate in another
(:mod:`candidate`), which it may change as it likes: all that counts are the bytes of its outputs on
inputs that this process drew (:mod:`checker`).
"""

from kernelassay.check.checker import Checker
from kernelassay.check.options import Candidate, CheckOptions
from kernelassay.check.verdict import Rejection, Verdict

__all__ = ["Candidate", "CheckOptions", "Checker", "Rejection", "Verdict"]
