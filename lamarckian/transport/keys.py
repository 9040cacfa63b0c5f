"""The key of a cluster: who holds it may connect, hears and is heard; nobody else is or does (CURVE, as ZeroMQ has it)."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import zmq

from lamarckian.errors import MisuseError


class Keys(msgspec.Struct, frozen=True):
    """A pair of CURVE keys, Z85. All machines of a cluster hold the same pair; either end of a connection proves that it has it."""

    public: str
    secret: str

    @classmethod
    def create(cls, path: Path) -> Keys:
        """Writes a new pair to a file that only its owner may read. Raises MisuseError when that cannot be, or a file is there."""
        public, secret = zmq.curve_keypair()
        keys = cls(public.decode(), secret.decode())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise MisuseError(f"{path} is there already; a key is not written over, since a cluster may be using it") from error
        except OSError as error:
            raise MisuseError(f"a key cannot be written to {path}: {error.strerror}") from error
        with open(fd, "wb") as file:
            file.write(msgspec.json.encode(keys))
        return keys

    @classmethod
    def read(cls, path: Path) -> Keys:
        """The pair in a file. Raises MisuseError when there is none, or others than its owner may read it."""
        try:
            if path.stat().st_mode & 0o077:
                raise MisuseError(f"others may read the key in {path}; take that from them: chmod 600 {path}")
            keys = msgspec.json.decode(path.read_bytes(), type=cls)
            if keys.public.encode() != zmq.curve_public(keys.secret.encode()):
                raise ValueError("the keys do not belong together")
        except OSError as error:
            raise MisuseError(f"there is no key to be read in {path}: {error.strerror}; `lamarckian keys {path}` makes one") from error
        except (msgspec.MsgspecError, ValueError, zmq.ZMQError) as error:
            raise MisuseError(f"what is in {path} is not a key: {error}; `lamarckian keys` makes one in a new file") from error
        return keys

    def guard(self, socket: zmq.Socket[bytes]) -> None:
        """Lets only those connect to a socket, not yet bound, who hold this pair."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.encode())
        socket.setsockopt(zmq.ZAP_DOMAIN, self.public.encode())  # the gate admits who has this key
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def present(self, socket: zmq.Socket[bytes]) -> None:
        """Lets a socket, not yet connected, speak only to those who hold this pair."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.public.encode())
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.encode())
