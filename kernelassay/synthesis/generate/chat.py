"""Asking a language model: any endpoint that speaks the chat-completions format, or a recording.

Every answer can be recorded, with its prompt, one file each, and replayed where there is no
endpoint. A recording is found by its prompt alone, so a prompt that changed has none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernelassay.errors import ToolchainError, UsageError
from kernelassay.session import slug, write_whole

if TYPE_CHECKING:
    from openai import OpenAI

BASE_URL, KEY, MODEL = "OPENAI_BASE_URL", "OPENAI_API_KEY", "KERNELASSAY_MODEL"
"""Where the endpoint, its key and the model are named: in the environment."""

TIMEOUT_SECONDS = 120.0
RETRIES = 2
LARGEST_ANSWER = 1 << 20
"""Characters of an answer that are looked at."""

UNREACHABLE, SLOW, REFUSED, EMPTY = (
    "the endpoint is down",
    "the endpoint did not answer in time",
    "the endpoint refused",
    "an empty answer",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said; ``failure`` tells why there is no text, in words that can be counted."""

    text: str
    failure: str = ""
    model: str = ""
    detail: str = ""


class Asks(Protocol):
    """Something that answers prompts."""

    def ask(self, name: str, prompt: str) -> Answer:
        """The answer to a prompt; ``name`` tells a reader of recordings what it was about."""


class Endpoint:
    """An endpoint, named in the environment. Raises as :meth:`from_environment`."""

    def __init__(self, client: OpenAI, model: str) -> None:
        self._client = client
        self._model = model

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] = os.environ,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
    ) -> Endpoint:
        """The endpoint that the environment names.

        Raises :class:`UsageError` if it names none, :class:`ToolchainError` without the package.
        """
        url, key, model = (environment.get(name, "") for name in (BASE_URL, KEY, MODEL))
        if not (url or key) or not model:
            raise UsageError(
                "no language model is named",
                hint=f"set {BASE_URL} or {KEY}, and {MODEL}; or give --replay DIR with recorded"
                " answers; or use a rung that needs none: r0, taxonomy, mosaic, search",
            )
        try:
            from openai import OpenAI
        except ImportError:
            raise ToolchainError(
                "the package openai is not installed",
                hint="pip install 'kernelassay[llm]'",
            ) from None
        client = OpenAI(
            base_url=url or None, api_key=key or "none", timeout=timeout, max_retries=retries
        )
        return cls(client, model)

    def ask(self, name: str, prompt: str) -> Answer:
        """As :class:`Asks`; a fault of the endpoint is an answer with a failure."""
        import openai

        try:
            reply = self._client.chat.completions.create(
                model=self._model, messages=[{"role": "user", "content": prompt}]
            )
            text = reply.choices[0].message.content
        except openai.APITimeoutError as error:
            return Answer("", SLOW, self._model, str(error))
        except openai.APIConnectionError as error:
            return Answer("", UNREACHABLE, self._model, str(error))
        except openai.APIError as error:
            return Answer("", REFUSED, self._model, str(error)[:500])
        except Exception as error:  # nonsense instead of JSON, or JSON without an answer
            return Answer("", EMPTY, self._model, f"{type(error).__name__}: {error}"[:500])
        if not isinstance(text, str) or not text.strip():
            return Answer("", EMPTY, self._model)
        return Answer(text[:LARGEST_ANSWER], "", self._model)


class Recorder:
    """Answers by asking, and writes prompt and answer to a file in a folder."""

    def __init__(self, asks: Asks, folder: Path) -> None:
        self._asks = asks
        self._folder = folder

    def ask(self, name: str, prompt: str) -> Answer:
        """As :class:`Asks`."""
        answer = self._asks.ask(name, prompt)
        kept = {
            "name": name,
            "model": answer.model,
            "prompt": prompt,
            "answer": answer.text,
            "failure": answer.failure,
            "detail": answer.detail,
        }
        text = json.dumps(kept, indent=1, sort_keys=True) + "\n"
        write_whole(self._folder / _file_name(name, prompt), text.encode())
        return answer


class Recording:
    """Answers from a folder that a :class:`Recorder` wrote."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError("is no folder of recorded answers", where=str(folder))
        self._folder = folder

    def ask(self, name: str, prompt: str) -> Answer:
        """As :class:`Asks`. Raises :class:`UsageError` if the prompt was never recorded."""
        path = self._folder / _file_name(name, prompt)
        try:
            kept: dict[str, Any] = json.loads(path.read_text())
            answer = Answer(*(str(kept[f]) for f in ("answer", "failure", "model", "detail")))
            if kept["prompt"] != prompt:
                raise ValueError("it answers another prompt")
        except FileNotFoundError:
            raise UsageError(
                f"no recorded answer to the prompt {name}",
                where=str(path),
                hint="a prompt follows from session, protocol, budget and seed, and from this"
                " version; record again: --record DIR",
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"damaged recording: {error}", where=str(path)) from error
        return answer


Make = Callable[[], Asks]


def asked_by(record: Path | None, replay: Path | None) -> Make:
    """What makes the answerer that the options of a command name; made when it is needed."""
    if record is not None and replay is not None:
        raise UsageError("--record and --replay exclude each other")

    def make() -> Asks:
        if replay is not None:
            return Recording(replay)
        endpoint = Endpoint.from_environment()
        return endpoint if record is None else Recorder(endpoint, record)

    return make


def _file_name(name: str, prompt: str) -> str:
    return f"{slug(name)}-{hashlib.sha256(prompt.encode()).hexdigest()[:12]}.json"
