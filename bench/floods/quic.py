"""First packets of QUIC version 1 (RFC 9000, RFC 9001): takes a client's apart and makes the same with other connection ids.

Needs `cryptography` (Debian: python3-cryptography).
"""

import os
import struct
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

SALT = bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a")
# A client must fill its first datagrams to this size (RFC 9000, section 14.1).
DATAGRAM = 1200


def _expand(secret: bytes, label: str, length: int) -> bytes:
    name = b"tls13 " + label.encode()
    info = struct.pack(">HB", length, len(name)) + name + b"\0"
    return HKDFExpand(hashes.SHA256(), length, info).derive(secret)


def _keys(connection: bytes) -> tuple[AESGCM, bytes, bytes]:
    """Key, IV and key of the header's protection of what a client sends first to this connection id."""
    extract = hmac.HMAC(SALT, hashes.SHA256())
    extract.update(connection)
    secret = _expand(extract.finalize(), "client in", 32)
    return AESGCM(_expand(secret, "quic key", 16)), _expand(secret, "quic iv", 12), _expand(secret, "quic hp", 16)


def _mask(key: bytes, sample: bytes) -> bytes:
    # RFC 9001, section 5.4.3, names ECB: one block each.
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(sample)[:5]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length (RFC 9000, section 16) and where it ends."""
    length = 1 << (data[at] >> 6)
    return int.from_bytes(data[at:at + length], "big") & ((1 << (8 * length - 2)) - 1), at + length


@dataclass(frozen=True)
class First:
    """A client's first packet: its own connection id, which its transport parameters repeat, and its frames."""

    source: bytes
    frames: bytes

    @classmethod
    def read(cls, datagram: bytes) -> "First":
        assert datagram[0] & 0xF0 == 0xC0 and datagram[1:5] == b"\0\0\0\1", "an Initial packet of version 1"
        end = 6 + datagram[5]
        destination = datagram[6:end]
        source = datagram[end + 1:end + 1 + datagram[end]]
        token, at = _number(datagram, end + 1 + datagram[end])
        length, at = _number(datagram, at + token)
        key, iv, header_key = _keys(destination)
        mask = _mask(header_key, datagram[at + 4:at + 20])
        first = datagram[0] ^ (mask[0] & 0x0F)
        size = (first & 3) + 1
        packet_number = bytes(a ^ b for a, b in zip(datagram[at:at + size], mask[1:], strict=False))
        header = bytes([first]) + datagram[1:at] + packet_number
        nonce = int.from_bytes(iv, "big") ^ int.from_bytes(packet_number, "big")
        frames = key.decrypt(nonce.to_bytes(12, "big"), datagram[at + size:at + length], header)
        return cls(source, frames.rstrip(b"\0"))

    def with_new_ids(self) -> bytes:
        """The same as another client's first datagram: to a random connection id, under keys of that id."""
        destination = os.urandom(8)
        key, iv, header_key = _keys(destination)
        before = b"\xc3\0\0\0\1" + bytes([8]) + destination + bytes([len(self.source)]) + self.source + b"\0"
        length = DATAGRAM - len(before) - 2
        header = before + struct.pack(">H", 0x4000 | length) + b"\0\0\0\0"
        frames = self.frames.ljust(length - 4 - 16, b"\0")
        sealed = key.encrypt(iv, frames, header)
        mask = _mask(header_key, sealed[:16])
        packet = bytearray(header + sealed)
        packet[0] ^= mask[0] & 0x0F
        at = len(header) - 4
        for index in range(4):
            packet[at + index] ^= mask[1 + index]
        return bytes(packet)


def garbage() -> bytes:
    """A datagram that looks like a first packet, with random ids and nothing that its keys could open."""
    return b"\xc3\0\0\0\1\x08" + os.urandom(8) + b"\x08" + os.urandom(8) + b"\0" + struct.pack(">H", 0x4000 | (DATAGRAM - 25)) + os.urandom(DATAGRAM - 25)
