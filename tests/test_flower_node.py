"""Our SuperNode: many messages in one process, nothing lost that could be sent again, and an end when the link is."""

import ssl
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError, inflate_object_from_contents
from flwr.supercore.protobuf.client import ProtobufClient
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity

from qfl_core.network import flower, supernode
from qfl_core.network.credentials import make_node_key
from qfl_core.network.supernode import Link, Node


class LinkEndsError(Exception):
    """The SuperLink refuses the node."""


class Superlink:
    """Plays a SuperLink: hands out messages, then refuses the node; ``replies`` holds the answers."""

    def __init__(self, *messages, refuses=()):
        self.messages, self.refuses = list(messages), list(refuses)
        self.objects, self.replies, self.confirmed, self.runs = {}, [], [], []
        self.lock = threading.Lock()  # Flower pushes the objects of an answer in several threads

    @property
    def link(self) -> Link:
        return Link(
            42,
            self.receive,
            self.send,
            self.get_run,
            self.get_fab,
            self.pull,
            self.push,
            lambda *a: self.confirmed.append(a),
        )

    def receive(self):
        if not self.messages:
            raise LinkEndsError
        message = self.messages.pop(0)
        if message is None or isinstance(message, BaseException):
            if message:
                raise message
            return None
        self.objects |= {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        message.metadata.__dict__["_message_id"] = message.object_id
        return message, get_object_tree(message)

    def pull(self, run_id, name):
        return self.objects[name]

    def send(self, reply, tree, seconds):
        self.tree, self.missing = tree, set(self._names(tree))
        return set(self.missing), "session"

    def _names(self, tree):
        return [tree.object_id, *(name for child in tree.children for name in self._names(child))]

    def push(self, run_id, session, name, content):
        with self.lock:
            if self.refuses:
                raise self.refuses.pop(0)
            self.objects[name] = content
            self.missing.remove(name)
            if not self.missing:
                self.replies.append(inflate_object_from_contents(self.tree.object_id, dict(self.objects)))

    def get_run(self, run_id):
        self.runs.append(run_id)
        return type("Run", (), {"fab_hash": "h", "series_id": 0})()

    def get_fab(self, fab_hash, run_id):
        return type("Fab", (), {"content": b""})()


@pytest.fixture
def pauses(monkeypatch):
    """Record how long a node waits, and wait for nothing."""
    waited = []
    watch = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic)
    monkeypatch.setattr(supernode, "time", watch)  # this module's alone, because other threads sleep, too
    monkeypatch.setattr(supernode, "get_fused_config_from_fab", lambda content, run: {"rounds": 3})
    return waited


def question(text: str) -> Message:
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 7  # as Flower sets them
    return Message(RecordDict({"request": ConfigRecord({"text": text})}), 42, "train", group_id="1")


class App:
    """Answers with the length of the question; ``asked`` holds what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, message, context):
        text = message.content["request"]["text"]
        self.asked.append(text)
        assert (context.node_id, context.node_config, context.run_config) == (42, {"partition-id": 3}, {"rounds": 3})
        if text == "fail":
            raise ValueError("a value of the data")
        if text == "refuse":
            return Message(Error(code=0, reason="no"), reply_to=message)
        return Message(RecordDict({"answer": MetricRecord({"length": len(text)})}), reply_to=message)


def served(*messages, refuses=()) -> tuple[Superlink, App]:
    link, app = Superlink(*messages, refuses=refuses), App()
    with pytest.raises(LinkEndsError):
        Node(link.link, {"partition-id": 3}, app).serve()
    return link, app


def test_messages_are_answered_one_after_the_other_and_a_run_is_looked_up_once(pauses):
    link, app = served(question("a"), None, question("bcd"))
    assert app.asked == ["a", "bcd"]
    assert [reply.content["answer"]["length"] for reply in link.replies] == [1, 3]
    assert len(link.confirmed) == 2
    assert len(link.runs) == 1


def test_a_node_waits_ever_longer_for_the_next_message_and_briefly_after_one(pauses):
    served(*[None] * 12, question("a"), None)
    assert pauses[:3] == [0.1, pytest.approx(0.15), pytest.approx(0.225)]
    assert pauses[11] == 3.0
    assert pauses[12] == 0.1


def test_the_same_question_again_gets_the_kept_answer_and_another_one_does_not(pauses):
    link, app = served(question("abc"), question("abc"), question("de"), question("abc"))
    assert app.asked == ["abc", "de", "abc"]
    assert [reply.content["answer"]["length"] for reply in link.replies] == [3, 3, 2, 3]


def test_an_answer_that_got_lost_does_not_end_the_node_and_is_given_again(pauses):
    link, app = served(question("abc"), question("abc"), refuses=[ObjectPushError("x", 7, "session")])
    assert app.asked == ["abc"]
    assert [reply.content["answer"]["length"] for reply in link.replies] == [3]


def test_a_run_that_is_over_does_not_end_the_node(pauses):
    link, _ = served(RunNotRunningException(), question("ab"))
    assert len(link.replies) == 1


def test_an_app_that_fails_is_reported_without_its_words_and_asked_again(pauses):
    link, app = served(question("fail"), question("fail"), question("refuse"), question("refuse"))
    assert app.asked == ["fail", "fail", "refuse", "refuse"]  # only an answer is kept
    errors = [(reply.error.code, reply.error.reason) for reply in link.replies]
    failed = (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "ValueError; the node's log says more")
    assert errors == [failed, failed, (0, "no"), (0, "no")]


# The program


def test_a_node_says_what_is_wrong_with_its_options(tmp_path, capsys):
    key = make_node_key(tmp_path, "node")
    with pytest.raises(SystemExit, match="needs TLS: leave out --insecure"):
        supernode.main(["--insecure", "--auth-supernode-private-key", str(key)])
    with pytest.raises(SystemExit, match="missing cannot be read"):
        supernode.main(["--auth-supernode-private-key", str(tmp_path / "missing")])
    (tmp_path / "junk").write_text("junk")
    with pytest.raises(SystemExit, match="junk cannot be read"):
        supernode.main(["--auth-supernode-private-key", str(tmp_path / "junk")])


def test_a_node_whose_link_is_lost_ends(monkeypatch):
    """Flower's connection swallows the exception that ends it; flower-supernode then stays without a connection."""

    @contextmanager
    def connection(asked):
        with suppress(LinkEndsError):
            yield Superlink().link.__dict__.values()

    monkeypatch.setattr(supernode, "_connection", connection)
    assert supernode.main(["--insecure"]) == 1


# Server errors


@pytest.fixture
def unpatched(monkeypatch):
    """Give Flower's client back as it was."""
    monkeypatch.setattr(ProtobufClient, "_send", ProtobufClient._send)


#: What a SuperLink says to a node that it takes for online.
TAKEN = httpx.Response(412, json={"code": 2004, "detail": "Failed to activate SuperNode."})


@pytest.mark.parametrize("refusal", [*map(httpx.Response, (500, 502, 503)), TAKEN], ids=lambda r: str(r.status_code))
def test_a_server_error_is_asked_again(unpatched, refusal):
    from google.protobuf.empty_pb2 import Empty

    flower.ask_again_when_cut()
    flower.ask_again_when_cut()  # twice is as good as once
    answers = [httpx.Response(refusal.status_code, content=refusal.content) for _ in range(2)] + [httpx.Response(200)]
    invoker = make_simple_http_retry_invoker()
    invoker.wait_function = lambda seconds: None
    with ProtobufClient("http://superlink", retry_invoker=invoker) as client:
        client._client = httpx.Client(transport=httpx.MockTransport(lambda request: answers.pop(0)))
        assert client._unary_unary(path="/x", rpc_method="/x", request=Empty(), response_type=Empty) == Empty()
    assert answers == []


@pytest.mark.parametrize("cause", [ssl.SSLEOFError("EOF in mid-message"), ssl.SSLZeroReturnError("closed")])
def test_a_connection_that_is_cut_in_mid_message_is_asked_again(unpatched, cause):
    assert asked_over_tls(cause) == 2


def test_a_wrong_certificate_is_final(unpatched):
    with pytest.raises(httpx.ConnectError, match="SSL"):
        asked_over_tls(ssl.SSLCertVerificationError("self-signed certificate"))


def asked_over_tls(cause: ssl.SSLError) -> int:
    """Ask over a connection that fails once, by this error of TLS; return how often it was tried."""
    from google.protobuf.empty_pb2 import Empty

    flower.ask_again_when_cut()
    invoker, tries = make_simple_http_retry_invoker(), []
    invoker.wait_function = lambda seconds: None

    def answer(request):
        tries.append(request)
        if len(tries) == 1:
            raise httpx.ConnectError("[SSL] error") from cause
        return httpx.Response(200)

    with ProtobufClient("https://superlink", retry_invoker=invoker) as client:
        client._client = httpx.Client(transport=httpx.MockTransport(answer))
        assert client._unary_unary(path="/x", rpc_method="/x", request=Empty(), response_type=Empty) == Empty()
    return len(tries)


def test_a_node_that_may_not_join_gives_up(unpatched, monkeypatch):
    """A SuperLink says the same to a node with an unknown key as to one that it takes for online."""
    from google.protobuf.empty_pb2 import Empty

    moments = iter(range(0, 1000, 40))
    monkeypatch.setattr(flower, "time", SimpleNamespace(monotonic=lambda: float(next(moments))))
    flower.ask_again_when_cut()
    invoker = make_simple_http_retry_invoker()
    invoker.wait_function = lambda seconds: None
    asked = []
    with ProtobufClient("http://superlink", retry_invoker=invoker) as client:
        answer = lambda request: asked.append(request) or httpx.Response(412, content=TAKEN.content)  # noqa: E731
        client._client = httpx.Client(transport=httpx.MockTransport(answer))
        with pytest.raises(httpx.HTTPStatusError, match="412"):
            client._unary_unary(path="/x", rpc_method="/x", request=Empty(), response_type=Empty)
    assert len(asked) == 4  # after 0, 40 and 80 seconds it goes on, after 120 it ends


@pytest.mark.parametrize("refusal", [404, 412])
def test_a_refusal_is_not_asked_again(unpatched, refusal):
    from google.protobuf.empty_pb2 import Empty

    flower.ask_again_when_cut()
    with ProtobufClient("http://superlink", retry_invoker=make_simple_http_retry_invoker()) as client:
        client._client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(refusal)))
        with pytest.raises(httpx.HTTPStatusError, match=str(refusal)):
            client._unary_unary(path="/x", rpc_method="/x", request=Empty(), response_type=Empty)
