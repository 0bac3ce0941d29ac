"""docs/protocol.md in Python: what tests of the daemon say to it without the client library."""

import array
import json
import mmap
import os
import socket
import struct

MAGIC = 0x31435248
HELLO, DESCRIBE, SAMPLE, STATS, AUDIT, SEEK, OPEN = range(1, 8)
ERROR = 0x1FF
CONTROL_BYTES = 16384


class Refused(Exception):
    """An error's frame."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Connection:
    """One hand-over connection."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect("\0" + path[1:] if path.startswith("@") else path)

    def send(self, kind, body=b"", request_id=1):
        try:
            self.socket.sendall(struct.pack("<4I", MAGIC, kind, len(body), request_id) + body)
        except BrokenPipeError:
            pass  # a daemon that refuses says why before it closes: read() finds that

    def _exactly(self, size, fds):
        data = b""
        while len(data) < size:
            part, ancillary, _, _ = self.socket.recvmsg(size - len(data), socket.CMSG_SPACE(4))
            if not part:
                raise EOFError
            for level, kind, payload in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.extend(array.array("i", payload))
            data += part
        return data

    def read(self):
        """(type, body, descriptors) of the next frame; Refused for an error's."""
        fds = []
        _, kind, length, _ = struct.unpack("<4I", self._exactly(16, fds))
        body = self._exactly(length, fds)
        if kind == ERROR:
            raise Refused(struct.unpack("<I", body[:4])[0], body[8:].decode())
        return kind, body, fds

    def request(self, kind, body):
        """JSON in, JSON out."""
        self.send(kind, json.dumps(body).encode())
        return json.loads(self.read()[1])

    def hello(self):
        """The daemon's pid."""
        self.send(HELLO, struct.pack("<2I", 2, 0))
        return struct.unpack("<3Ii32s", self.read()[1])[3]

    def close(self):
        self.socket.close()


def control(path):
    connection = Connection(path)
    connection.hello()
    return connection


def small_spec(dataset, **changes):
    spec = {"dataset": str(dataset), "batch_size": 4, "dtype": "uint8", "transform": [{"name": "Resize", "size": [24, 20]}]}
    return {**spec, **changes}


class Session:
    """A session on a connection of its own, with its ring mapped."""

    def __init__(self, path, spec, epoch=0, position=0):
        self.connection = Connection(path)
        self.connection.send(OPEN, json.dumps({"spec": spec, "epoch": epoch, "position": position}).encode())
        _, body, (memfd,) = self.connection.read()
        self.id, self.dataset_size = struct.unpack_from("<2Q", body)
        _, _, self.slots, self.ticket, _, _ = struct.unpack_from("<6I", body, 56)
        self.slot_bytes, self.ring_bytes, _ = struct.unpack_from("<3Q", body, 80)
        self.ring = mmap.mmap(memfd, self.ring_bytes)
        os.close(memfd)

    def _word(self, offset):
        return struct.unpack_from("<I", self.ring, offset)[0]

    @property
    def reason(self):
        """Why the daemon stops; None if it does not."""
        if not self._word(128 + 4):
            return None
        return self.ring[128 + 8 : 256].split(b"\0")[0].decode()

    def next(self):
        """The slot of the next ticket, once it is ready."""
        while True:
            for slot in range(self.slots):
                if self._word(384 + 128 * slot) == self.ticket:
                    self.ticket += 1
                    return slot
            struct.pack_into("<I", self.ring, 256, 1)
            if any(self._word(384 + 128 * slot) == self.ticket for slot in range(self.slots)):
                continue
            if not self.connection.socket.recv(64):
                raise EOFError(self.reason)

    def release(self, slot):
        line = 384 + 128 * slot
        struct.pack_into("<I", self.ring, line + 64, self._word(line))
        if self._word(128):
            self.connection.socket.send(b"x")

    def image_bytes(self, slot):
        start = CONTROL_BYTES + slot * self.slot_bytes
        return self.ring[start : start + 4 * 3 * 24 * 20]
