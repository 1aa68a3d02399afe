"""A recorded combo to Triton's first intermediate text, and that text to machine code for sm_90.

The text is normalised (no locations, no names of values or functions), and the rest of the
compiler sees nothing but it and the options: equal texts give equal machine code.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from kernelassay.compile.triton.recorder import CAPABILITY, Combo
from kernelassay.errors import ToolchainError

LAUNCH_OPTIONS = (
    "num_warps", "num_ctas", "cluster_dims", "launch_cooperative_grid", "launch_pdl",
)  # fmt: skip
"""Options that a launch goes by, beside the machine code."""
_SYMBOL = re.compile(r'"(?:[^"\\]|\\.)*"|@(?:"(?:[^"\\]|\\.)*"|[\w$.-]+)')
_DEFINED = re.compile(r'tt\.func (?:\w+ )?(@(?:"(?:[^"\\]|\\.)*"|[\w$.-]+))')
_ERROR_LENGTH = 500


def target() -> Any:
    """The device that code is compiled for."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", CAPABILITY, 32)


def prepare() -> None:
    """Compute what Triton computes once per process: half a second, mostly of hashing itself."""
    from triton.compiler.compiler import make_backend
    from triton.runtime.cache import triton_key

    backend = make_backend(target())
    backend.parse_options({}).hash()
    backend.hash()
    triton_key()


def lowered(combo: Combo) -> tuple[str, str, str]:
    """The normalised TTIR of a combo, its options as JSON, and "" or why there is none."""
    from triton._C.libtriton import ir
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend

    options = _plain_options(combo.options)
    try:
        source = ASTSource(combo.function, combo.signature, combo.constants, combo.attributes)
        backend = make_backend(target())
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        module = source.make_ir(
            target(),
            combo.options,
            backend.get_codegen_implementation(combo.options),
            backend.get_module_map(),
            context,
        )
        stages: dict[str, Any] = {}
        backend.add_stages(stages, combo.options, source.language)
        module = stages["ttir"](module, {})
        return normalised(module.str_nodebug()), options, ""
    except Exception as error:
        return "", options, compile_error(error)


def normalised(text: str) -> str:
    """TTIR with its functions renamed in order of definition."""
    names: dict[str, str] = {}
    for name in _DEFINED.findall(text):
        names.setdefault(name, f"@f{len(names)}")
    return _SYMBOL.sub(lambda found: names.get(found.group(), found.group()), text)


def _plain_options(options: Any) -> str:
    plain = dict(vars(options))
    plain.pop("extern_libs")  # a path of this machine
    return json.dumps(plain, sort_keys=True)


def machine_code(text: str, options: str, folder: str) -> tuple[str, str]:
    """A digest of a text's machine code and of what its launch goes by, and "" or why none.

    Files go into ``folder``. Raises :class:`ToolchainError` where the compiler's tools are missing.
    """
    import triton

    path = Path(folder) / "kernel.ttir"
    path.write_text(text)
    chosen = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(options).items()}
    try:
        made = triton.compile(str(path), target=target(), options=chosen)
    except OSError as error:
        raise ToolchainError(f"Triton's compiler does not run: {error}") from error
    except Exception as error:
        return "", compile_error(error)
    metadata = {
        name: value
        for name, value in made.metadata._asdict().items()
        if name in LAUNCH_OPTIONS or (name not in chosen and name.islower())
    }
    for name in ("hash", "name", "target", "triton_version", "extern_libs"):
        metadata.pop(name, None)
    digest = hashlib.blake2b(made.asm["cubin"], digest_size=16)
    digest.update(json.dumps(metadata, sort_keys=True, default=str).encode())
    return digest.hexdigest(), ""


def compile_error(error: BaseException) -> str:
    """One line that says where and why a kernel does not compile."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__ or error.__context__
    if cause is not None and lines and lines[0].startswith("at "):
        inner = compile_error(cause)
        return inner if ": at " in inner else f"error: {lines[0].rstrip(':')}: {_tail(inner)}"
    if len(lines) > 1 and lines[0].startswith("at "):
        return f"error: {lines[0].rstrip(':')}: {lines[-1]}"[:_ERROR_LENGTH]
    return f"error: {type(error).__name__}: {lines[0] if lines else ''}"[:_ERROR_LENGTH]


def _tail(message: str) -> str:
    return message.removeprefix("error: ")
