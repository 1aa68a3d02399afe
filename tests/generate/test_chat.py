"""A language model is asked over HTTP, whatever the other side does; answers are recorded."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernelassay.errors import UsageError
from kernelassay.synthesis.generate import chat
from kernelassay.synthesis.generate.chat import (
    BASE_URL,
    EMPTY,
    KEY,
    MODEL,
    REFUSED,
    SLOW,
    UNREACHABLE,
    Answer,
    Endpoint,
    Recorder,
    Recording,
    asked_by,
)

RETRIES = 1


class Server:
    """Speaks the chat-completions format on a port of this machine, or misbehaves as told."""

    def __init__(self, behaviour="answer", text="hello"):
        self.behaviour = behaviour
        self.text = text
        self.asked = []
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["content-length"])
                outer.asked.append(json.loads(self.rfile.read(length)))
                outer.reply(self)

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def reply(self, handler):
        status, body = 200, json.dumps(self.message())
        if self.behaviour == "slow":
            self.over.wait(30)
        if self.behaviour == "refuse":
            status, body = 401, json.dumps({"error": {"message": "no such key"}})
        if self.behaviour == "overloaded":
            status, body = 503, "try later"
        if self.behaviour == "garbage":
            body = "<html>not at all"
        if self.behaviour == "no choices":
            body = json.dumps({**self.message(), "choices": []})
        if self.behaviour == "another shape":
            body = json.dumps({"answer": 42})
        data = body.encode()
        try:
            handler.send_response(status)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except OSError:  # the other side has given up
            pass

    def message(self):
        said = {"role": "assistant", "content": self.text}
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        head = {"id": "x", "object": "chat.completion", "created": int(time.time()), "model": "m"}
        return {**head, "choices": [choice]}

    @property
    def environment(self):
        port = self._server.server_address[1]
        return {BASE_URL: f"http://127.0.0.1:{port}/v1", KEY: "k", MODEL: "small"}

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


def ask(server, timeout=10.0):
    pytest.importorskip("openai")
    endpoint = Endpoint.from_environment(server.environment, timeout, RETRIES)
    return endpoint.ask("r1-suite/relu", "make inputs")


def test_an_answer_is_what_the_model_says():
    with Server(text="```python\npass\n```") as server:
        assert ask(server) == Answer("```python\npass\n```", "", "small")
    (asked,) = server.asked
    assert asked["model"] == "small"
    assert asked["messages"] == [{"role": "user", "content": "make inputs"}]


@pytest.mark.parametrize(
    ("behaviour", "failure", "requests"),
    [
        ("refuse", REFUSED, 1),
        ("overloaded", REFUSED, 1 + RETRIES),
        ("garbage", EMPTY, 1),
        ("no choices", EMPTY, 1),
        ("another shape", EMPTY, 1),
    ],
)
def test_what_goes_wrong_is_an_answer_with_a_reason(behaviour, failure, requests):
    with Server(behaviour) as server:
        answer = ask(server)
    assert (answer.text, answer.failure) == ("", failure)
    assert len(server.asked) == requests


@pytest.mark.parametrize("text", ["", "  \n", None])
def test_an_answer_without_text_is_empty(text):
    with Server(text=text) as server:
        assert ask(server).failure == EMPTY


def test_an_endpoint_that_is_slow_is_given_up_after_bounded_retries():
    with Server("slow") as server:
        assert ask(server, timeout=0.3).failure == SLOW
        assert len(server.asked) == 1 + RETRIES


def test_an_endpoint_that_is_down_is_said_to_be():
    with Server() as server:
        gone = server
    assert ask(gone).failure == UNREACHABLE


def test_a_long_answer_is_cut(monkeypatch):
    monkeypatch.setattr(chat, "LARGEST_ANSWER", 10)
    with Server(text="x" * 1000) as server:
        assert ask(server).text == "x" * 10


@pytest.mark.parametrize("missing", [(BASE_URL, KEY), (MODEL,)])
def test_without_an_endpoint_or_a_model_the_error_says_what_to_set(missing):
    with Server() as server:
        environment = {k: v for k, v in server.environment.items() if k not in missing}
    with pytest.raises(UsageError, match=f"{BASE_URL}.*{MODEL}.*--replay"):
        Endpoint.from_environment(environment)


# ---- recordings --------------------------------------------------------------------------------


class Says:
    def __init__(self, *answers):
        self.answers = list(answers)

    def ask(self, name, prompt):
        return self.answers.pop(0)


@pytest.mark.parametrize("answer", [Answer("text", "", "m", ""), Answer("", SLOW, "m", "30 s")])
def test_a_recording_replays_what_was_answered(answer, tmp_path):
    recorder = Recorder(Says(answer, Answer("other")), tmp_path)
    assert recorder.ask("r1-suite/relu", "one") == answer
    recorder.ask("r1-suite/relu", "two")
    assert Recording(tmp_path).ask("r1-suite/relu", "one") == answer
    assert len(list(tmp_path.iterdir())) == 2


def test_a_prompt_that_was_not_recorded_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UsageError, match="no recorded answer to the prompt r1-suite/relu"):
        Recording(tmp_path).ask("r1-suite/relu", "one")


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"answer": 1}'])
def test_a_damaged_recording_is_an_error(damage, tmp_path):
    Recorder(Says(Answer("text")), tmp_path).ask("n", "one")
    (path,) = tmp_path.iterdir()
    path.write_text(damage)
    with pytest.raises(UsageError, match="damaged recording"):
        Recording(tmp_path).ask("n", "one")


def test_a_recording_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no folder of recorded answers"):
        asked_by(None, tmp_path / "absent")()


def test_recording_and_replaying_exclude_each_other(tmp_path):
    with pytest.raises(UsageError, match="exclude"):
        asked_by(tmp_path, tmp_path)
