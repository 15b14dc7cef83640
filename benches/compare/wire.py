"""Requests and answers: protobuf by hand, and gRPC over HTTP/2 as far as one call needs it.

h2load sends a body and counts answers without reading them. So each body is first sent by `Ask.verify`, which does read
them: a benchmark of errors cannot pass as speed.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Callable

WEIR = "/weir.v1.RateLimiter/"
ENVOY = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
THROTTLECRAB = "/throttlecrab.RateLimiter/Throttle"


class WrongAnswer(Exception):
    """An answer is missing, or not the one that is to be measured."""


def varint(number):
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(encoded + bytes([number]))


def message(*fields):
    """Encodes pairs of a field's number and its value: an int, a text, or an encoded message."""
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(value)) + value
    return encoded


def read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def fields(data):
    """The pairs of an encoded message, without what neither is a number nor has a length."""
    at, found = 0, []
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        elif tag & 7 == 2:
            length, at = read_varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            at += {1: 8, 5: 4}[tag & 7]
            continue
        found.append((tag >> 3, value))
    return found


def framed(*messages):
    """Messages as gRPC carries them: each behind a byte (not compressed) and its length."""
    return b"".join(b"\0" + struct.pack(">I", len(message)) + message for message in messages)


def unframed(body):
    messages, at = [], 0
    while len(body) - at >= 5 and len(body) - at - 5 >= (length := struct.unpack_from(">I", body, at + 1)[0]):
        messages.append(body[at + 5 : at + 5 + length])
        at += 5 + length
    return messages


def connect(address, timeout):
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout)
        connection.connect(address.removeprefix("unix:"))
        return connection
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host.strip("[]"), int(port)), timeout)


def call(address, path, body, timeout=10.0):
    """The messages that a call is answered with; none where it is answered with an error."""

    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def text(value):
        return bytes([len(value)]) + value.encode()

    # HPACK without compression: POST and http stand in the static table, the others name or spell their header.
    head = b"\x83\x86\x04" + text(path) + b"\x01" + text("localhost")
    head += b"\x0f\x10" + text("application/grpc") + b"\x00" + text("te") + text("trailers")
    parts = [body[at : at + 16_384] for at in range(0, len(body), 16_384)]
    data = b"".join(frame(0, int(part is parts[-1]), 1, part) for part in parts)
    # Windows as large as they can be, so that none has to be moved.
    windows = frame(4, 0, 0, struct.pack(">HI", 4, 0x7FFF_FFFF)) + frame(8, 0, 0, struct.pack(">I", 0x7FFF_0000))
    answer, received = b"", b""
    with connect(address, timeout) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + windows + frame(1, 4, 1, head) + data)
        while chunk := connection.recv(1 << 16):
            received += chunk
            while len(received) >= 9 and len(received) >= 9 + (length := int.from_bytes(received[:3], "big")):
                kind, flags, stream = struct.unpack(">BBI", received[3:9])
                payload, received = received[9 : 9 + length], received[9 + length :]
                if stream == 1 and kind == 0:
                    answer += payload
                elif kind == 4 and not flags & 1:
                    connection.sendall(frame(4, 1, 0, b""))
                if stream == 1 and flags & 1 or kind in (3, 7):
                    return unframed(answer)
    return unframed(answer)


@dataclass(frozen=True)
class Answer:
    allowed: bool
    levels: int


def read_check(answer):
    """Of a `CheckResponse`. One with an error inside is not allowed and has no levels."""
    found = fields(answer)
    return [Answer((1, 1) in found, sum(number == 10 for number, _ in found))]


def read_batch(answer):
    return [read for number, value in fields(answer) if number == 1 for read in read_check(value)]


def read_throttle(answer):
    return [Answer((1, 1) in fields(answer), 0)]


def read_envoy(answer):
    return [Answer((1, 1) in fields(answer), 0)]


@dataclass(frozen=True)
class Ask:
    """A call that is made again and again."""

    path: str
    body: bytes
    checks: int  # of one call
    read: Callable
    allowed: bool = True
    levels: int = 0

    def verify(self, address):
        """Makes the call once; the bytes of an answer to one check.

        Raises WrongAnswer where one of the answers is missing or another than is expected."""
        messages = call(address, self.path, self.body)
        answers = [answer for message in messages for answer in self.read(message)]
        expected = [Answer(self.allowed, self.levels)] * self.checks
        if answers != expected:
            raise WrongAnswer(
                f"{self.path} at {address}: {len(answers)} answers {answers[:3]}, not {len(expected)} {expected[:1]}"
            )
        return sum(map(len, messages)) / self.checks


def gcra(burst, per_second):
    """A `LimitSpec` of one GCRA."""
    return message((1, message((10, message((1, burst), (2, per_second), (3, message((1, 1))))))))


def check(*key, domain="", summary_only=False, limits=b""):
    """A `CheckRequest`."""
    named = [(1, domain)] if domain else []
    brought = [(3, limits)] if limits else []
    return message(*named, *((2, segment) for segment in key), *brought, *([(7, 1)] if summary_only else []))


def unary(request, **expected):
    return Ask(WEIR + "Check", framed(request), 1, read_check, **expected)


def batch(requests, **expected):
    body = framed(message(*((1, request) for request in requests)))
    return Ask(WEIR + "CheckBatch", body, len(requests), read_batch, **expected)


def stream(request, count, **expected):
    return Ask(WEIR + "CheckStream", framed(request) * count, count, read_check, **expected)


def throttle(key, burst, count, period_seconds, **expected):
    request = message((1, key), (2, burst), (3, count), (4, period_seconds), (5, 1))
    return Ask(THROTTLECRAB, framed(request), 1, read_throttle, **expected)


def envoy(domain, entries):
    descriptor = message(*((1, message((1, key), (2, value))) for key, value in entries))
    return Ask(ENVOY, framed(message((1, domain), (2, descriptor))), 1, read_envoy)
