import contextlib
import stat

import msgspec
import pytest
import zmq

from lamarckian.errors import MisuseError
from lamarckian.transport.channel import Inbox, Outbox, Terms
from lamarckian.transport.codec import PROTOCOL
from lamarckian.transport.keys import Keys
from tests.commands import run, wait_for


class Word(msgspec.Struct, tag=True):
    text: str


FORGED = b"LMK" + bytes([PROTOCOL]) + msgspec.msgpack.encode(Word("forged"))


@pytest.fixture
def keys(tmp_path):
    return Keys.create(tmp_path / "cluster.key")


@pytest.fixture
def inbox(keys):
    inbox = Inbox((Word,), "tcp://127.0.0.1:*", Terms(keys=keys))
    yield inbox
    inbox.close()


def test_the_command_makes_a_key_that_only_its_owner_reads(tmp_path):
    path = tmp_path / "new" / "cluster.key"
    assert run("keys", path).returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keys = Keys.read(path)
    assert run("keys", path).returncode == 2 and Keys.read(path) == keys
    with pytest.raises(MisuseError, match="not written over"):
        Keys.create(path)


def test_a_key_is_refused_that_others_may_read_or_that_is_none(tmp_path, keys):
    path = tmp_path / "cluster.key"
    path.chmod(0o640)
    with pytest.raises(MisuseError, match="chmod 600"):
        Keys.read(path)
    path.chmod(0o600)
    for content in (b"", b"{}", msgspec.json.encode(Keys(keys.public, zmq.curve_keypair()[1].decode()))):
        path.write_bytes(content)
        with pytest.raises(MisuseError, match="is not a key"):
            Keys.read(path)
    with pytest.raises(MisuseError, match="no key to be read"):
        Keys.read(tmp_path / "absent")


def test_those_who_hold_the_key_hear_each_other(inbox, keys):
    peer = Outbox((Word,), inbox.address, "peer", Terms(keys=keys))
    peer.send(Word("hello"))
    assert inbox.receive(10.0) == ("peer", Word("hello"))
    inbox.send("peer", Word("welcome"))
    assert peer.receive(10.0) == Word("welcome")
    assert inbox.statistics().refused == 0
    peer.close()


def curve(server: str, pair: tuple[bytes, bytes]) -> dict[int, bytes]:
    return {zmq.CURVE_SERVERKEY: server.encode(), zmq.CURVE_PUBLICKEY: pair[0], zmq.CURVE_SECRETKEY: pair[1]}


@pytest.mark.parametrize("knows", ["nothing", "another key", "the public half"])
def test_without_the_key_nobody_hears_or_is_heard(inbox, keys, knows, caplog):
    other = zmq.curve_keypair()
    options = {"nothing": {}, "another key": curve(other[0].decode(), other), "the public half": curve(keys.public, other)}[knows]
    stranger = zmq.Context.instance().socket(zmq.DEALER)
    stranger.linger, stranger.identity = 0, b"stranger"
    for option, value in options.items():
        stranger.setsockopt(option, value)
    stranger.connect(inbox.address)
    with contextlib.suppress(zmq.Again):  # turned away for good before it could speak
        stranger.send(FORGED, zmq.DONTWAIT)
    wait_for(lambda: inbox.statistics().refused, 10.0, "refusal")
    assert inbox.receive(0.2) is None
    assert not inbox.send("stranger", Word("secret")) and not stranger.poll(200)
    assert inbox.statistics().received == 0
    assert sum("is refused" in line for line in caplog.messages) == 1
    stranger.close()


def test_who_holds_the_key_does_not_speak_to_an_impostor(keys):
    impostor = zmq.Context.instance().socket(zmq.ROUTER)
    impostor.linger = 0
    port = impostor.bind_to_random_port("tcp://127.0.0.1")
    peer = Outbox((Word,), f"tcp://127.0.0.1:{port}", "peer", Terms(keys=keys))
    peer.send(Word("secret"))
    assert not impostor.poll(500)
    peer.close()
    impostor.close()
