#!/usr/bin/env python3
"""Reads a warpcrypt vault without the program: list, cat, extract, verify, salvage.

Written from docs/format.md alone, as a second implementation, and as access to the data that needs only Python 3.10.
It never writes to the vault. The packages in requirements.txt make it faster: pycryptodome (AES, Keccak) and
argon2-cffi. Without the latter, a password with the default cost takes many minutes.
"""

import argparse
import base64
import getpass
import hashlib
import json
import os
import stat
import struct
import sys
from array import array
from functools import lru_cache

try:
    try:
        from Crypto.Cipher import AES
        from Crypto.Hash import KMAC128, KMAC256, TurboSHAKE128
    except ImportError:  # Debian's python3-pycryptodome
        from Cryptodome.Cipher import AES
        from Cryptodome.Hash import KMAC128, KMAC256, TurboSHAKE128
except ImportError:
    AES = KMAC128 = KMAC256 = TurboSHAKE128 = None

try:
    from argon2.low_level import Type as Argon2Type
    from argon2.low_level import hash_secret_raw as argon2_hash
except ImportError:
    argon2_hash = None

EXIT_OTHER, EXIT_KEY, EXIT_NO_VAULT, EXIT_FORMAT, EXIT_CONFIG, EXIT_DAMAGE = 1, 10, 12, 13, 14, 41


class VaultError(Exception):
    """The vault cannot be opened, or a path is not in it."""

    def __init__(self, message, code=EXIT_OTHER):
        super().__init__(message)
        self.code = code


class Damage(Exception):
    """Stored bytes that do not authenticate, or that no writer produces."""


class Reserved(Exception):
    """A form that format.md reserves: not damaged, but not readable by this reader."""


# ---------------------------------------------------------------------------------------------------------------------
# Keccak, KMAC (SP 800-185), TurboSHAKE (RFC 9861)

MASK64 = (1 << 64) - 1


def _keccak_constants():
    rotations, target, x, y, offset = [0] * 25, [0] * 25, 1, 0, 0
    for t in range(24):
        offset += t + 1
        rotations[x + 5 * y] = offset % 64
        x, y = y, (2 * x + 3 * y) % 5
    for x in range(5):
        for y in range(5):
            target[x + 5 * y] = y + 5 * ((2 * x + 3 * y) % 5)
    constants, register = [], 1
    for _ in range(24):
        constant = 0
        for j in range(7):
            if register & 1:
                constant |= 1 << ((1 << j) - 1)
            register = (register << 1) ^ (0x171 if register >> 7 else 0)
        constants.append(constant)
    return constants, [(i, rotations[i], target[i]) for i in range(25)]


ROUND_CONSTANTS, LANE_MOVES = _keccak_constants()
ROWS = [(i, i // 5 * 5 + (i + 1) % 5, i // 5 * 5 + (i + 2) % 5) for i in range(25)]


def keccak_p(lanes, rounds):
    """The last `rounds` rounds of Keccak-f[1600] over 25 lanes."""
    moved = [0] * 25
    for constant in ROUND_CONSTANTS[24 - rounds:]:
        c = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in range(5)]
        d = [c[x - 1] ^ (c[(x + 1) % 5] << 1 & MASK64) ^ (c[(x + 1) % 5] >> 63) for x in range(5)]
        for i, rotation, target in LANE_MOVES:
            v = lanes[i] ^ d[i % 5]
            moved[target] = (v << rotation | v >> (64 - rotation)) & MASK64
        lanes = [moved[i] ^ (~moved[j] & moved[k]) for i, j, k in ROWS]
        lanes[0] ^= constant
    return lanes


def sponge(rate, rounds, data, domain, length):
    """Keccak[`rate`] over whole bytes; the byte `domain` begins the padding."""
    padded = bytearray(data)
    padded.append(domain)
    padded.extend(bytes(-len(padded) % rate))
    padded[-1] ^= 0x80
    words = struct.Struct("<%dQ" % (rate // 8))
    lanes = [0] * 25
    for at in range(0, len(padded), rate):
        for i, word in enumerate(words.unpack_from(padded, at)):
            lanes[i] ^= word
        lanes = keccak_p(lanes, rounds)
    out = words.pack(*lanes[:rate // 8])
    while len(out) < length:
        lanes = keccak_p(lanes, rounds)
        out += words.pack(*lanes[:rate // 8])
    return out[:length]


def left_encode(n):
    digits = n.to_bytes(max(1, (n.bit_length() + 7) // 8), "big")
    return bytes([len(digits)]) + digits


def right_encode(n):
    digits = n.to_bytes(max(1, (n.bit_length() + 7) // 8), "big")
    return digits + bytes([len(digits)])


def encode_string(s):
    return left_encode(8 * len(s)) + s


def bytepad(x, width):
    x = left_encode(width) + x
    return x + bytes(-len(x) % width)


def _kmac(rate, key, data, length, custom):
    prefix = bytepad(encode_string(b"KMAC") + encode_string(custom), rate) + bytepad(encode_string(key), rate)
    return sponge(rate, 24, prefix + data + right_encode(8 * length), 0x04, length)


def kmac128(key, data, length, custom):
    """KMAC128; `length` in bytes."""
    if KMAC128:
        return KMAC128.new(key=key, data=data, mac_len=length, custom=custom).digest()
    return _kmac(168, key, data, length, custom)


def kmac256(key, data, length, custom):
    """KMAC256; `length` in bytes."""
    if KMAC256:
        return KMAC256.new(key=key, data=data, mac_len=length, custom=custom).digest()
    return _kmac(136, key, data, length, custom)


def turboshake_mac(key, data, length, custom):
    """T of format.md; `length` in bytes."""
    prefix = bytepad(encode_string(b"warpcrypt TurboSHAKE MAC") + encode_string(custom), 168)
    data = prefix + bytepad(encode_string(key), 168) + data + right_encode(8 * length)
    if TurboSHAKE128:
        return TurboSHAKE128.new(domain=0x4D, data=data).read(length)
    return sponge(168, 12, data, 0x4D, length)


LANE = 1000


def turboshake128x4(key, head, data, length, custom):
    lanes = min(4, len(data) // LANE)
    values = b"".join(turboshake_mac(key, data[i * LANE:(i + 1) * LANE], 32, b"warpcrypt v2 lane") for i in range(lanes))
    return turboshake_mac(key, data[lanes * LANE:] + values + head + bytes([lanes]), length, custom)


# F(key, head, data, length in bytes, customisation string)
INTEGRITY = {
    "kmac128": lambda key, head, data, length, custom: kmac128(key, head + data, length, custom),
    "kmac256": lambda key, head, data, length, custom: kmac256(key, head + data, length, custom),
    "turboshake128x4": turboshake128x4,
}

# ---------------------------------------------------------------------------------------------------------------------
# AES (FIPS 197), Kuznyechik (GOST R 34.12-2015), counter mode, SIV


def _gf_product(a, b, polynomial):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a <<= 1
        if a & 0x100:
            a ^= polynomial
        b >>= 1
    return product


def _aes_tables():
    box, p, q = [0] * 256, 1, 1
    while True:
        p = _gf_product(p, 3, 0x11B)
        q = _gf_product(q, 0xF6, 0x11B)  # the inverse of 3
        box[p] = q ^ (q << 1 | q >> 7) & 255 ^ (q << 2 | q >> 6) & 255 ^ (q << 3 | q >> 5) & 255 ^ (q << 4 | q >> 4) & 255 ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    tables = [[], [], [], []]
    for s in box:
        word = _gf_product(s, 2, 0x11B) << 24 | s << 16 | s << 8 | _gf_product(s, 3, 0x11B)
        for i in range(4):
            tables[i].append((word >> 8 * i | word << (32 - 8 * i)) & 0xFFFFFFFF)
    return box, tables


AES_BOX, AES_TABLES = _aes_tables()


def _aes_encryptor(key):
    words = list(struct.unpack(">%dI" % (len(key) // 4), key))
    n, constant = len(words), 1
    rounds = n + 6

    def substituted(w):
        return AES_BOX[w >> 24] << 24 | AES_BOX[w >> 16 & 255] << 16 | AES_BOX[w >> 8 & 255] << 8 | AES_BOX[w & 255]

    for i in range(n, 4 * (rounds + 1)):
        w = words[-1]
        if i % n == 0:
            w = substituted((w << 8 | w >> 24) & 0xFFFFFFFF) ^ constant << 24
            constant = _gf_product(constant, 2, 0x11B)
        elif n > 6 and i % n == 4:
            w = substituted(w)
        words.append(words[i - n] ^ w)
    t0, t1, t2, t3 = AES_TABLES
    box = AES_BOX

    def encrypt(block):
        a, b, c, d = (block >> 96) ^ words[0], (block >> 64 & 0xFFFFFFFF) ^ words[1], \
            (block >> 32 & 0xFFFFFFFF) ^ words[2], (block & 0xFFFFFFFF) ^ words[3]
        for k in range(4, 4 * rounds, 4):
            a, b, c, d = (
                t0[a >> 24] ^ t1[b >> 16 & 255] ^ t2[c >> 8 & 255] ^ t3[d & 255] ^ words[k],
                t0[b >> 24] ^ t1[c >> 16 & 255] ^ t2[d >> 8 & 255] ^ t3[a & 255] ^ words[k + 1],
                t0[c >> 24] ^ t1[d >> 16 & 255] ^ t2[a >> 8 & 255] ^ t3[b & 255] ^ words[k + 2],
                t0[d >> 24] ^ t1[a >> 16 & 255] ^ t2[b >> 8 & 255] ^ t3[c & 255] ^ words[k + 3])
        out = 0
        for k, (p, q, r, s) in enumerate(((a, b, c, d), (b, c, d, a), (c, d, a, b), (d, a, b, c))):
            w = box[p >> 24] << 24 | box[q >> 16 & 255] << 16 | box[r >> 8 & 255] << 8 | box[s & 255]
            out = out << 32 | w ^ words[4 * rounds + k]
        return out

    return encrypt


KUZNYECHIK_BOX = bytes.fromhex(
    "fceedd11cf6e3116fbc4fada23c5044de977f0db932e99ba1736f1bb14cd5fc1"
    "f918655ae25cef21811c3c428b018e4f058402aee36a8fa0060bed987fd4d31f"
    "eb342c51eac848abf22a68a2fd3aceccb5700e56080c7612bf7213479cb75d87"
    "15a19629107b9ac7f391786f9d9eb2b13275193dff358a7e6d54c680c3bd0d57"
    "dff524a93ea843c9d779d6f67c22b903e00fecde7a94b0bcdce828504e330a4a"
    "a79760731e0062441ab83882649f2641ad454692275e552f8ca3a57d69d5953b"
    "0758b34086ac1df730376be488d9e789e11b83494c3ff8fe8d53aa90cad88561"
    "207167a42d2b095bcb9b25d0bee56c5259a674d2e6f4b4c0d166afc2394b63b6")
KUZNYECHIK_ROW = bytes([148, 32, 133, 16, 194, 192, 1, 251, 1, 192, 194, 16, 133, 32, 148, 1])


def _kuznyechik_linear(block):
    """L: sixteen steps of a shift register over GF(256) with x^8 + x^7 + x^6 + x + 1."""
    block = bytearray(block)
    for _ in range(16):
        first = 0
        for a, b in zip(block, KUZNYECHIK_ROW):
            first ^= _gf_product(a, b, 0x1C3)
        block = bytearray([first]) + block[:15]
    return int.from_bytes(block, "big")


@lru_cache(1)
def _kuznyechik_tables():
    """Tables of L, and of L after S, for one byte at each of the 16 positions."""
    linear = []
    for place in range(16):
        bits = [_kuznyechik_linear(bytes(place) + bytes([1 << bit]) + bytes(15 - place)) for bit in range(8)]
        table = [0] * 256
        for byte in range(1, 256):
            table[byte] = table[byte & byte - 1] ^ bits[(byte & -byte).bit_length() - 1]
        linear.append(table)
    return linear, [[table[s] for s in KUZNYECHIK_BOX] for table in linear]


def _kuznyechik_encryptor(key):
    linear, both = _kuznyechik_tables()

    def mixed(block):
        out = 0
        for table, byte in zip(both, block.to_bytes(16, "big")):
            out ^= table[byte]
        return out

    a, b = int.from_bytes(key[:16], "big"), int.from_bytes(key[16:], "big")
    keys = [a, b]
    for i in range(1, 33):
        a, b = mixed(a ^ linear[15][i]) ^ b, a
        if i % 8 == 0:
            keys += [a, b]

    def encrypt(block):
        for round_key in keys[:9]:
            block = mixed(block ^ round_key)
        return block ^ keys[9]

    return encrypt


# Key length and a function from the key to the encryption of one block, an integer.
CIPHERS = {
    "aes-128-ctr": (16, _aes_encryptor),
    "aes-192-ctr": (24, _aes_encryptor),
    "aes-256-ctr": (32, _aes_encryptor),
    "kuznyechik-ctr": (32, _kuznyechik_encryptor),
}


@lru_cache(64)
def _block_encryptor(cipher, key):
    return CIPHERS[cipher][1](key)


def ctr(cipher, key, counter, data):
    """Counter mode with a full-block counter; encrypts and decrypts. Uses only the bytes of `key` that it needs."""
    key = key[:CIPHERS[cipher][0]]
    start = int.from_bytes(counter, "big")
    if AES and cipher.startswith("aes"):
        return AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=start).encrypt(data)
    encrypt = _block_encryptor(cipher, key)
    blocks = range(-(-len(data) // 16))
    stream = b"".join(encrypt((start + i) % (1 << 128)).to_bytes(16, "big") for i in blocks)[:len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def subkey(key, label):
    return kmac256(key, label.encode(), 32, b"warpcrypt v2 subkey")


@lru_cache(256)
def _siv_keys(key):
    return subkey(key, "siv prf"), subkey(key, "siv encryption")


def _siv_iv(key, context, text):
    parts = b"".join(struct.pack(">Q", len(part)) + part for part in context)
    return kmac256(_siv_keys(key)[0], struct.pack(">Q", len(context)) + parts + text, 16, b"warpcrypt v2 siv")


def siv_open(cipher, key, context, sealed):
    """Raises Damage if `sealed` does not authenticate."""
    if len(sealed) < 16:
        raise Damage("shorter than an iv")
    text = ctr(cipher, _siv_keys(key)[1], sealed[:16], sealed[16:])
    if _siv_iv(key, context, text) != sealed[:16]:
        raise Damage("does not authenticate")
    return text


def siv_seal(cipher, key, context, text):
    """Used for lookups, to compute the stored form of a known name."""
    iv = _siv_iv(key, context, text)
    return iv + ctr(cipher, _siv_keys(key)[1], iv, text)


# ---------------------------------------------------------------------------------------------------------------------
# Argon2id (RFC 9106)


def _argon2_mix(v, a, b, c, d):
    for first, second in ((32, 24), (16, 63)):
        x, y = v[a], v[b]
        x = x + y + 2 * (x & 0xFFFFFFFF) * (y & 0xFFFFFFFF) & MASK64
        z = v[d] ^ x
        z = (z >> first | z << 64 - first) & MASK64
        w = v[c]
        w = w + z + 2 * (w & 0xFFFFFFFF) * (z & 0xFFFFFFFF) & MASK64
        y ^= w
        v[a], v[b], v[c], v[d] = x, (y >> second | y << 64 - second) & MASK64, w, z


_ARGON2_STEPS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                 (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
_ARGON2_GROUPS = [range(16 * i, 16 * i + 16) for i in range(8)] + [
    [16 * (j // 2) + 2 * i + j % 2 for j in range(16)] for i in range(8)]


def _argon2_compress(x, y):
    r = [a ^ b for a, b in zip(x, y)]
    v = list(r)
    for group in _ARGON2_GROUPS:
        for a, b, c, d in _ARGON2_STEPS:
            _argon2_mix(v, group[a], group[b], group[c], group[d])
    return array("Q", [a ^ b for a, b in zip(r, v)])


def _argon2_long_hash(data, length):
    data = struct.pack("<I", length) + data
    if length <= 64:
        return hashlib.blake2b(data, digest_size=length).digest()
    out, block = b"", hashlib.blake2b(data).digest()
    while length - len(out) > 64:
        out += block[:32]
        block = hashlib.blake2b(block, digest_size=min(64, length - len(out))).digest()
    return out + block


def argon2id_slow(password, salt, memory, passes, lanes, length):
    """Argon2id in pure Python: about one second per MiB and pass."""
    head = struct.pack("<6I", lanes, length, memory, passes, 0x13, 2)
    for part in (password, salt, b"", b""):
        head += struct.pack("<I", len(part)) + part
    h0 = hashlib.blake2b(head).digest()
    columns = memory // (4 * lanes) * 4
    segment = columns // 4
    blocks = [[None] * columns for _ in range(lanes)]
    for lane in range(lanes):
        for column in range(2):
            blocks[lane][column] = array("Q", _argon2_long_hash(h0 + struct.pack("<II", column, lane), 1024))
    zero = array("Q", bytes(1024))
    for turn in range(passes):
        for slice_ in range(4):
            for lane in range(lanes):
                addresses = None
                for index in range(2 if turn == 0 and slice_ == 0 else 0, segment):
                    column = slice_ * segment + index
                    previous = blocks[lane][column - 1]
                    if turn == 0 and slice_ < 2:
                        if addresses is None or index % 128 == 0:
                            counter = array("Q", [turn, lane, slice_, lanes * columns, passes, 2, index // 128 + 1])
                            counter.extend([0] * 121)
                            addresses = _argon2_compress(zero, _argon2_compress(zero, counter))
                        random = addresses[index % 128]
                    else:
                        random = previous[0]
                    other = lane if turn == 0 and slice_ == 0 else (random >> 32) % lanes
                    area = slice_ * segment if turn == 0 else columns - segment
                    if other == lane:
                        area += index - 1
                    elif index == 0:
                        area -= 1
                    x = (random & 0xFFFFFFFF) ** 2 >> 32
                    start = 0 if turn == 0 or slice_ == 3 else (slice_ + 1) * segment
                    reference = (start + area - 1 - (area * x >> 32)) % columns
                    block = _argon2_compress(previous, blocks[other][reference])
                    if turn:
                        block = array("Q", [a ^ b for a, b in zip(block, blocks[lane][column])])
                    blocks[lane][column] = block
    last = zero
    for lane in range(lanes):
        last = array("Q", [a ^ b for a, b in zip(last, blocks[lane][columns - 1])])
    return _argon2_long_hash(last.tobytes(), length)


@lru_cache(64)
def argon2id(password, salt, memory, passes, lanes):
    if argon2_hash:
        return argon2_hash(password, salt, passes, memory, lanes, 32, Argon2Type.ID, 0x13)
    if memory * passes > 8192:
        minutes = memory * passes // 60000 + 1
        print(f"vaultread: without the package argon2-cffi this password takes about {minutes} minutes", file=sys.stderr)
    return argon2id_slow(password, salt, memory, passes, lanes, 32)


# ---------------------------------------------------------------------------------------------------------------------
# Configuration

MAX_CONFIG = 65536
KDF_KINDS = {"password": 1, "key-file": 2, "recovery": 3, "password-and-key-file": 4}
MAX_ARGON2 = {"memory_kib": 4194304, "passes": 64, "lanes": 64}


def be(n, size):
    return n.to_bytes(size, "big")


def prefixed(x):
    """prefixed(x) of format.md."""
    return be(len(x), 4) + x


def _refuse(text):
    raise Damage(f"not a value of a configuration: {text}")


def _no_duplicates(pairs):
    if len(dict(pairs)) != len(pairs):
        raise Damage("a field occurs twice")
    return dict(pairs)


def _natural(text):
    return _refuse(text) if text.startswith("-") else int(text)


def _fields(value, names, optional=()):
    if not isinstance(value, dict) or not set(names) <= set(value) <= {*names, *optional}:
        raise Damage("unknown or missing fields")
    return value


def _number(value, low, high):
    """Returns `value` if it is an integer in [`low`, `high`). Otherwise raises Damage."""
    if type(value) is not int or not low <= value < high:
        raise Damage("a number out of range")
    return value


def _hex(value, size):
    if not isinstance(value, str) or len(value) != 2 * size or set(value) - set("0123456789abcdef"):
        raise Damage("not lower-case hexadecimal of the right length")
    return bytes.fromhex(value)


def _one_of(value, choices):
    if not isinstance(value, str) or value not in choices:
        raise Damage("an unknown name")
    return value


class FormerKey:
    """A wrapped former master key, and the list of items that it is still accepted for."""

    def __init__(self, value, key_generation):
        _fields(value, ("generation", "wrapped", "list", "items"))
        self.generation = _number(value["generation"], 0, key_generation)
        self.wrapped, self.list = _hex(value["wrapped"], 48), _hex(value["list"], 12)
        self.items = _number(value["items"], 0, 1 << 64)


class Slot:
    """A key slot."""

    def __init__(self, value):
        _fields(value, ("id", "created", "kdf", "wrapped"), ("label",))
        self.id = _number(value["id"], 1, 1 << 32)
        self.created = _number(value["created"], 0, 1 << 64)
        self.label = None
        if "label" in value:
            if not isinstance(value["label"], str):
                raise Damage("a label of another type")
            try:
                self.label = value["label"].encode()
            except UnicodeEncodeError:
                raise Damage("a label that is not Unicode") from None
            if len(self.label) > 64 or any(ord(c) < 32 or 127 <= ord(c) < 160 for c in value["label"]):
                raise Damage("a label too long or with control characters")
        self.wrapped = _hex(value["wrapped"], 48)
        if not isinstance(value["kdf"], dict) or len(value["kdf"]) != 1:
            raise Damage("not one key derivation")
        (self.kind, kdf), = value["kdf"].items()
        _one_of(self.kind, KDF_KINDS)
        with_password = self.kind.startswith("password")
        _fields(kdf, (*MAX_ARGON2, "salt") if with_password else ("salt",))
        self.salt = _hex(kdf["salt"], 32)
        self.kdf = be(KDF_KINDS[self.kind], 1)
        if with_password:
            lanes = _number(kdf["lanes"], 1, MAX_ARGON2["lanes"] + 1)
            memory = _number(kdf["memory_kib"], 8 * lanes, MAX_ARGON2["memory_kib"] + 1)
            self.cost = (memory, _number(kdf["passes"], 1, MAX_ARGON2["passes"] + 1), lanes)
            self.kdf += b"".join(be(n, 4) for n in self.cost)
        self.kdf += self.salt

    def wrapping_key(self, secret):
        """W of format.md, or None if the slot needs another kind of secret."""
        if self.kind != secret.kind:
            return None
        if self.kind == "recovery":
            return kmac256(self.salt, secret.recovery, 32, b"warpcrypt v2 recovery key")
        if self.kind == "key-file":
            return kmac256(self.salt, secret.key_file, 32, b"warpcrypt v2 key file")
        key = argon2id(secret.password, self.salt, *self.cost)
        if self.kind == "password":
            return key
        return kmac256(key, secret.key_file, 32, b"warpcrypt v2 password and key file")


class Secret:
    """A secret that opens a key slot."""

    def __init__(self, password=None, key_file=None, recovery=None):
        self.password, self.key_file, self.recovery = password, key_file, recovery
        if recovery is not None:
            self.kind = "recovery"
        elif password is not None:
            self.kind = "password" if key_file is None else "password-and-key-file"
        else:
            self.kind = "key-file"


class Config:
    """A parsed configuration, not yet authenticated."""

    def __init__(self, text):
        if len(text) > MAX_CONFIG:
            raise Damage("too long")
        try:
            value = json.loads(text.decode(), object_pairs_hook=_no_duplicates, parse_int=_natural,
                               parse_float=_refuse, parse_constant=_refuse)
        except (ValueError, RecursionError) as e:
            raise Damage(f"not JSON: {e}") from None
        if not isinstance(value, dict) or "format" not in value:
            raise Damage("not a configuration")
        if type(value["format"]) is int and value["format"] != 2:
            raise VaultError(f"format {value['format']}: this reader knows format 2", EXIT_FORMAT)
        _fields(value, ("format", "vault_id", "generation", "cipher", "integrity", "names", "key_generation",
                        "former_keys", "next_slot", "slots", "mac"))
        _number(value["format"], 2, 3)
        self.vault_id = _hex(value["vault_id"], 16)
        self.generation = _number(value["generation"], 1, 1 << 63)
        self.cipher = _one_of(value["cipher"], CIPHERS)
        self.integrity = _one_of(value["integrity"], INTEGRITY)
        self.names = _one_of(value["names"], MAX_SHORT)
        self.key_generation = _number(value["key_generation"], 0, 1 << 32)
        former, slots = value["former_keys"], value["slots"]
        if not isinstance(former, list) or len(former) > 1 or not isinstance(slots, list) or not 1 <= len(slots) <= 32:
            raise Damage("too many former keys, or no or too many slots")
        self.former = [FormerKey(key, self.key_generation) for key in former]
        self.next_slot = _number(value["next_slot"], 1, 1 << 32)
        self.slots = [Slot(slot) for slot in slots]
        ids = [slot.id for slot in self.slots] + [self.next_slot]
        if any(a >= b for a, b in zip(ids, ids[1:])):
            raise Damage("slot ids do not rise")
        self.mac = _hex(value["mac"], 32)

    def mac_under(self, master):
        m = be(2, 4) + self.vault_id + be(self.generation, 8)
        m += b"".join(prefixed(x.encode()) for x in (self.cipher, self.integrity, self.names))
        m += be(self.key_generation, 4) + be(len(self.former), 4)
        m += b"".join(be(key.generation, 4) + key.wrapped + key.list + be(key.items, 8) for key in self.former)
        m += be(self.next_slot, 4) + be(len(self.slots), 4)
        for slot in self.slots:
            m += be(slot.id, 4) + be(slot.created, 8) + be(slot.label is not None, 1)
            m += prefixed(slot.label or b"") + prefixed(slot.kdf) + slot.wrapped
        return kmac256(subkey(master, "configuration"), m, 32, b"warpcrypt v2 configuration")

    def unlock(self, secret):
        """Returns the master key, or None if the secret opens no slot."""
        for slot in self.slots:
            key = slot.wrapping_key(secret)
            if key is None:
                continue
            context = b"warpcrypt v2 key slot" + self.vault_id + be(slot.id, 4) + slot.kdf
            try:
                return siv_open("aes-256-ctr", key, [context], slot.wrapped)
            except Damage:
                continue
        return None

    def master_keys(self, master):
        """Master keys by key generation."""
        keys = {self.key_generation: master}
        for key in self.former:
            context = b"warpcrypt v2 former master key" + self.vault_id + be(key.generation, 4)
            keys[key.generation] = siv_open("aes-256-ctr", subkey(master, "former keys"), [context], key.wrapped)
        return keys

    def follows(self, other, master):
        """Whether another configuration is authenticated by this one's master key, or by a former key in it."""
        try:
            return any(other.mac_under(key) == other.mac for key in self.master_keys(master).values())
        except Damage:
            return other.mac_under(master) == other.mac


def choose_config(texts, secret):
    """Chooses the valid configuration among the texts of both files. Returns it and its master key."""
    configs, problems = [], []
    for text in texts:
        try:
            if text is not None:
                configs.append(Config(text))
        except Damage as e:
            problems.append(str(e))
    if not configs:
        raise VaultError("; ".join(problems) or "not a vault", EXIT_CONFIG if problems else EXIT_NO_VAULT)
    opened = [(config, config.unlock(secret)) for config in configs]
    masters = {master for _, master in opened if master is not None}
    if not masters:
        raise VaultError("no key slot opens: another password or key, or an edited configuration", EXIT_KEY)
    authentic = [(config, own, master) for config, own in opened for master in masters
                 if config.mac_under(master) == config.mac]
    if not authentic:
        raise VaultError("the configuration was edited without the key", EXIT_CONFIG)
    config, own, master = max(authentic, key=lambda found: found[0].generation)
    if own != master:
        raise VaultError("the key opens an older configuration alone", EXIT_KEY)
    if any(master is not None and not config.follows(other, own) for other, master in opened):
        raise VaultError("the two configurations are of different histories", EXIT_CONFIG)
    return config, own


BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def recovery_key(text):
    """Decodes the text form of a recovery key to its 32 bytes."""
    text = "".join(text.split()).replace("-", "").upper().replace("O", "0").replace("I", "1").replace("L", "1")
    if len(text) != 65 or set(text) - set(BASE32):
        raise VaultError("a recovery key has 13 groups of 5 characters", EXIT_KEY)
    bits = 0
    for group in range(13):
        digits = [BASE32.index(c) for c in text[5 * group:5 * group + 5]]
        check = group + 1
        for digit in digits[:4]:
            check = (check ^ digit) << 1
            if check & 32:
                check ^= 37
            bits = bits << 5 | digit
        if check != digits[4]:
            raise VaultError(f"group {group + 1} of the recovery key has a wrong character", EXIT_KEY)
    if bits & 15:
        raise VaultError("the recovery key's last group is wrong", EXIT_KEY)
    return be(bits >> 4, 32)


# ---------------------------------------------------------------------------------------------------------------------
# Layout of a stored file

PAGE = CHUNK = 4096
FIRST_GROUP, LATER_GROUP, CHILDREN = 48, 64, 128
RECORD, SLOT, ENTRY, ENTRIES_AT = 512, 32, 64, 1024
MAX_SIZE, MAX_EPOCH, MAX_SEQUENCE = 1 << 44, 1 << 48, 1 << 63


def chunks_of(size):
    return -(-size // CHUNK)


def group_of(chunk):
    """Group of a chunk, and its index in the group."""
    if chunk < FIRST_GROUP:
        return 0, chunk
    return 1 + (chunk - FIRST_GROUP) // LATER_GROUP, (chunk - FIRST_GROUP) % LATER_GROUP


def groups_of(size):
    return group_of(chunks_of(size) - 1)[0] + 1 if size else 1


def first_chunk(group):
    return FIRST_GROUP + (group - 1) * LATER_GROUP if group else 0


def chunks_in(group):
    return LATER_GROUP if group else FIRST_GROUP


def _nodes_before(group):
    total, level = 0, 1
    while group and CHILDREN ** (level - 1) <= group:
        total += 1 + group // CHILDREN ** level
        level += 1
    return total


def _at(group, nodes):
    return PAGE + FIRST_GROUP * CHUNK + (group - 1) * (PAGE + LATER_GROUP * CHUNK) + PAGE * nodes


def leaf_at(group):
    return _at(group, _nodes_before(group))


def entries_at(group):
    return leaf_at(group) if group else ENTRIES_AT


def chunk_at(chunk):
    group, place = group_of(chunk)
    return leaf_at(group) + PAGE + place * CHUNK if group else PAGE + chunk * CHUNK


def node_at(level, page):
    group = page * CHILDREN ** level if page else CHILDREN ** (level - 1)
    return _at(group, _nodes_before(group - 1)) + PAGE * (level - 1)


def stored_size(size):
    if size == 0:
        return PAGE
    last = chunks_of(size) - 1
    return chunk_at(last) + size - last * CHUNK


def levels_of(size):
    groups, level = groups_of(size), 0
    while CHILDREN ** level < groups:
        level += 1
    return level


def length_of(chunk, size):
    """Plaintext bytes of a chunk in a file of `size` bytes; 0 or less past the end."""
    return min(CHUNK, size - chunk * CHUNK)


# ---------------------------------------------------------------------------------------------------------------------
# One stored file


class FileKeys:
    """The keys of a file, and everything computed with them."""

    def __init__(self, config, master, salt):
        keys = kmac256(subkey(master, "contents"), salt, 96, b"warpcrypt v2 file keys")
        self.encryption, self.chunk_mac, self.tree = keys[:32], keys[32:64], keys[64:]
        self.cipher, self.integrity = config.cipher, INTEGRITY[config.integrity]

    def tag(self, chunk, nonce, epoch, ciphertext):
        head = nonce + be(chunk, 8) + be(epoch, 8)
        if nonce == bytes(10):
            return self.integrity(self.chunk_mac, head + be(0, 4), b"", 16, b"warpcrypt v2 hole")
        head += be(len(ciphertext), 4)
        return self.integrity(self.chunk_mac, head, ciphertext, 16, b"warpcrypt v2 chunk")

    def decrypt(self, chunk, nonce, ciphertext):
        return ctr(self.cipher, self.encryption, nonce + be(256 * chunk, 6), ciphertext)

    def leaf(self, group, slots):
        """Digest of a group from its current slots, with zeros for missing ones."""
        if not any(slots):
            return bytes(32)
        return self.integrity(self.tree, be(group, 8), slots, 32, b"warpcrypt v2 leaf")

    def node(self, level, page, digests):
        if not any(digests):
            return bytes(32)
        return self.integrity(self.tree, be(level, 4) + be(page, 8), digests, 32, b"warpcrypt v2 node")

    def record(self, content):
        return self.integrity(self.tree, b"", content, 32, b"warpcrypt v2 record")


class SlotValue:
    """One version of a chunk: nonce, epoch and tag."""

    def __init__(self, raw):
        self.raw, self.nonce, self.epoch, self.tag = raw, raw[:10], int.from_bytes(raw[10:16], "big"), raw[16:]

    @property
    def is_hole(self):
        return self.nonce == bytes(10)


class Version:
    """A record's description of one version of the file."""

    def __init__(self, raw):
        self.epoch, self.size, self.root = *struct.unpack(">QQ", raw[:16]), raw[16:]


class Record:
    """A valid commit record."""

    def __init__(self, raw, keys):
        """`keys` maps a key generation and a salt to a file's keys. Raises Damage."""
        self.raw = raw
        magic, version, state, self.generation, self.sequence = struct.unpack(">8sHHIQ", raw[:24])
        if magic != b"warpfile" or version != 2:
            raise Damage("a record that is none")
        self.salt = raw[24:56]
        self.keys = keys(self.generation, self.salt)
        if self.keys.record(raw[:480]) != raw[480:]:
            raise Damage("a record does not authenticate")
        self.target, self.base = Version(raw[56:104]), Version(raw[104:152])
        self.is_clean, self.is_recovery = state == 0, state == 2
        # Newest first: the version flushed before the target, and the newest of those that overwrote
        # data of the base.
        self.since_base = [Version(raw[at:at + 48]) for at in (152, 200)] if state == 1 else []
        self.limit = int.from_bytes(raw[152:160], "big")
        self.unreadable = [int.from_bytes(raw[at:at + 8], "big") - 1 for at in range(160, 480, 8)]
        if state > 2 or self.sequence >= MAX_SEQUENCE or not self._is_plausible(raw):
            raise Damage("a record with values out of range")
        self.since_base = [version for version in self.since_base if version.epoch]
        self.unreadable = {chunk for chunk in self.unreadable if chunk >= 0}

    def _is_plausible(self, raw):
        versions = [self.target, *self.since_base, self.base]
        if any(version.size > MAX_SIZE or version.epoch >= MAX_EPOCH for version in versions):
            return False
        if self.is_clean:
            return not any(raw[104:480])
        if self.is_recovery:
            named = [chunk for chunk in self.unreadable if chunk >= 0]
            return (self.base.epoch <= self.limit < self.target.epoch
                    and self.unreadable == sorted(set(named)) + [-1] * (40 - len(named))
                    and all(chunk < chunks_of(self.target.size) for chunk in named))
        previous, barrier = self.since_base
        if any(raw[248:480]) or barrier.epoch and not previous.epoch:
            return False
        if any(not version.epoch and (version.size or any(version.root)) for version in self.since_base):
            return False
        epochs = [version.epoch for version in (self.base, barrier, previous, self.target)
                  if version.epoch or version is self.base]
        return all(lower < higher for lower, higher in zip(epochs, epochs[1:]))


class Stored:
    """The bytes of a stored file."""

    def __init__(self, fd):
        self.fd, self.size = fd, os.fstat(fd).st_size

    def __del__(self):
        os.close(self.fd)

    def read(self, at, length):
        """Reads `length` bytes, with zeros past the end."""
        parts = b""
        while len(parts) < length:
            part = os.pread(self.fd, length - len(parts), at + len(parts))
            if not part:
                return parts + bytes(length - len(parts))
            parts += part
        return parts

    def slots(self, group):
        """The two slots of each chunk in the group, including those of epoch 0."""
        raw = self.read(entries_at(group), ENTRY * chunks_in(group))
        pairs = [SlotValue(raw[at:at + SLOT]) for at in range(0, len(raw), SLOT)]
        return list(zip(pairs[::2], pairs[1::2]))

    def verified(self, keys, chunk, slot, length):
        """The plaintext of a chunk. Raises Damage if it does not verify under the slot."""
        if slot is None:
            return bytes(length)
        ciphertext = b"" if slot.is_hole else self.read(chunk_at(chunk), length)
        if keys.tag(chunk, slot.nonce, slot.epoch, ciphertext) != slot.tag:
            raise Damage(f"chunk {chunk} does not authenticate")
        return bytes(length) if slot.is_hole else keys.decrypt(chunk, slot.nonce, ciphertext)


class EmptyContent:
    """A file that was never committed."""

    size, salt = 0, None
    state = "never committed"


class Content:
    """A file whose size is proven; `chunk` raises Damage for unproven chunks."""

    def __init__(self, stored, record, size):
        self.stored, self.keys, self.salt, self.size = stored, record.keys, record.salt, size
        self.state = "clean" if record.is_clean else "dirty"

    def slot(self, chunk):
        raise NotImplementedError

    def chunk(self, chunk):
        return self.stored.verified(self.keys, chunk, self.slot(chunk), length_of(chunk, self.size))


class CleanContent(Content):
    """Content of a clean file, proven by node pages, group by group."""

    def __init__(self, stored, record):
        super().__init__(stored, record, record.target.size)
        self.version, self.groups, self.nodes = record.target, {}, {}
        if stored.size != stored_size(self.size):
            raise Damage(f"stored length {stored.size}, not {stored_size(self.size)}")
        if self.size == 0:
            self._group(0)

    def _node(self, level, page):
        """Child digests of a node page, proven by those above."""
        if (level, page) not in self.nodes:
            raw = self.stored.read(node_at(level, page), PAGE)
            if self.keys.node(level, page, raw) != self._digest(level, page):
                raise Damage(f"node page {page} of level {level} does not authenticate")
            self.nodes[level, page] = raw
        return self.nodes[level, page]

    def _digest(self, level, page):
        """The digest of a group (level 0) or node page, as the page above it stores it."""
        if level == levels_of(self.size):
            return self.version.root
        at = 32 * (page % CHILDREN)
        return self._node(level + 1, page // CHILDREN)[at:at + 32]

    def _group(self, group):
        if group not in self.groups:
            if group and self._digest(0, group) == bytes(32):
                self.groups[group] = [None] * chunks_in(group)
                return self.groups[group]
            end, first = chunks_of(self.size), first_chunk(group)
            current = []
            for place, pair in enumerate(self.stored.slots(group)):
                used = [slot for slot in pair if slot.epoch and first + place < end]
                if len(used) > 1 or any(any(slot.raw) for slot in pair if slot not in used):
                    raise Damage(f"chunk {first + place} has a slot that no clean file has")
                current.append(used[0] if used and used[0].epoch <= self.version.epoch else None)
                if used and current[-1] is None:
                    raise Damage(f"chunk {first + place} has a slot above the version's epoch")
            raw = b"".join(slot.raw if slot else bytes(SLOT) for slot in current)
            if self.keys.leaf(group, raw) != self._digest(0, group):
                raise Damage(f"the entries of group {group} do not authenticate")
            self.groups[group] = current
        return self.groups[group]

    def slot(self, chunk):
        group, place = group_of(chunk)
        return self._group(group)[place]


class RecoveredContent(Content):
    """Content of a dirty file, from the slots that recovery chose."""

    def __init__(self, stored, record, size, chosen):
        super().__init__(stored, record, size)
        self.chosen = chosen

    def slot(self, chunk):
        return self.chosen[chunk]


def root_of(keys, size, slot_of):
    """Root over the slots of a version: `slot_of(chunk)` is a slot or None."""
    count = chunks_of(size)
    digests = {}
    for group in range(groups_of(size)):
        first = first_chunk(group)
        slots = [slot_of(i) if i < count else None for i in range(first, first + chunks_in(group))]
        digests[group] = keys.leaf(group, b"".join(slot.raw if slot else bytes(SLOT) for slot in slots))
    for level in range(1, levels_of(size) + 1):
        pages = {page // CHILDREN for page in digests}
        digests = {page: keys.node(level, page, b"".join(
            digests.get(page * CHILDREN + i, bytes(32)) for i in range(CHILDREN))) for page in pages}
    return digests[0]


class Slots:
    """The slots of a file that is not clean."""

    def __init__(self, stored, newest):
        self.stored, self.keys, self.base, self.groups = stored, newest.keys, newest.base, {}

    def at(self, epoch, chunk):
        """The newest slot not above an epoch, if it is above the base or the chunk is in the base."""
        group, place = group_of(chunk)
        if group not in self.groups:
            self.groups[group] = self.stored.slots(group)
        found = max((slot for slot in self.groups[group][place] if 0 < slot.epoch <= epoch),
                    key=lambda slot: slot.epoch, default=None)
        return found if found and (self.is_above_base(found) or chunk < chunks_of(self.base.size)) else None

    def is_above_base(self, slot):
        return slot is not None and slot.epoch > self.base.epoch

    def verifies(self, chunk, slot, length):
        try:
            self.stored.verified(self.keys, chunk, slot, length)
            return True
        except Damage:
            return False


def recover(stored, newest):
    """R1 and R2 of format.md: the content of a file whose newest record is dirty."""
    slots = Slots(stored, newest)
    proven = [version for version in (newest.target, *newest.since_base, newest.base)
              if root_of(newest.keys, version.size, lambda chunk: slots.at(version.epoch, chunk)) == version.root]
    if not proven:
        raise Damage("dirty, and no version is proven")
    best, chosen = proven[0], []
    for chunk in range(chunks_of(best.size)):
        length, slot = length_of(chunk, best.size), slots.at(best.epoch, chunk)
        if slots.is_above_base(slot) and not slots.verifies(chunk, slot, length):
            older = next((v for v in proven[1:] if slots.at(v.epoch, chunk) is not slot), None)
            if older and chunk >= chunks_of(older.size):
                return RecoveredContent(stored, newest, chunk * CHUNK, chosen)
            if older and length_of(chunk, older.size) <= length:
                slot = slots.at(older.epoch, chunk)
                if length_of(chunk, older.size) < length:
                    return RecoveredContent(stored, newest, older.size, [*chosen, slot])
        chosen.append(slot)
    return RecoveredContent(stored, newest, best.size, chosen)


def recover_again(stored, newest):
    """The content of a file whose newest record says that recovery was storing its choices."""
    slots, target = Slots(stored, newest), newest.target

    def chosen(chunk):
        slot = slots.at(newest.limit, chunk)
        if (not slots.is_above_base(slot) or chunk in newest.unreadable
                or slots.verifies(chunk, slot, length_of(chunk, target.size))):
            return slot
        return slots.at(newest.base.epoch, chunk)

    every = [chosen(chunk) for chunk in range(chunks_of(target.size))]
    if root_of(newest.keys, target.size, lambda chunk: every[chunk]) != target.root:
        raise Damage("its recovery was cut short, and what it chose is not there")
    return RecoveredContent(stored, newest, target.size, every)


def open_content(stored, keys, accepts):
    """The content of a stored file. `accepts` may reject the newest record. Raises Damage if nothing is proven."""
    if not stored.size:
        return EmptyContent
    if stored.size < PAGE:
        raise Damage("shorter than a page")
    sectors = [stored.read(at, RECORD) for at in (0, RECORD)]
    if not any(any(sector) for sector in sectors):
        raise Damage("its header is blank")
    records = [Record(sector, keys) for sector in sectors if any(sector)]
    newest = max(records, key=lambda record: record.sequence)
    for record in records:
        if (record.salt, record.generation) != (newest.salt, newest.generation):
            raise Damage("records of two files")
        if record.sequence == newest.sequence and record.raw != newest.raw:
            raise Damage("two records with one sequence number")
    if not accepts(newest):
        raise Damage("under the former key, and not as it was when the rotation began")
    if newest.is_clean:
        return CleanContent(stored, newest)
    return recover_again(stored, newest) if newest.is_recovery else recover(stored, newest)


def salvage(stored, keys_of_salt):
    """The plaintext of each chunk that its tag proves, or None. The tree is ignored: versions can be mixed, and holes
    look like lost chunks. `keys_of_salt` returns the keys to try for a salt."""
    sectors = [stored.read(at, RECORD) for at in (0, RECORD)]
    keys = [k for salt in dict.fromkeys(sector[24:56] for sector in sectors) for k in keys_of_salt(salt)]
    sizes = [int.from_bytes(sector[at:at + 8], "big") for sector in sectors for at in (64, 112)]
    found, chunk = [], 0
    while chunk_at(chunk) < stored.size:
        group, place = group_of(chunk)
        longest = min(CHUNK, stored.size - chunk_at(chunk))
        lengths = {longest, *(length_of(chunk, size) for size in sizes if 0 < length_of(chunk, size) < longest)}
        found.append(_salvaged(stored, keys, chunk, stored.slots(group)[place], sorted(lengths, reverse=True)))
        chunk += 1
    while found and found[-1] is None:
        found.pop()
    return found


def _salvaged(stored, keys, chunk, slots, lengths):
    for slot in sorted(slots, key=lambda s: -s.epoch):
        for file_keys in keys if slot.epoch else ():
            for length in lengths:
                try:
                    return stored.verified(file_keys, chunk, slot, length)
                except Damage:
                    pass
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Directories, names, links, attributes

OWN, LONG, PLAIN, LINK = b"warpcrypt.", b"warpcrypt.long.", b"warpcrypt.plain.", b"warpcrypt.link."
REWRITE = b"warpcrypt.rewrite."
MAX_NAME, MAX_TARGET, MAX_SHORT_TARGET, MAX_LIST = 255, 4095, 3039, 1 << 20
# Maximum length of a name without a sidecar.
MAX_SHORT = {"encrypted": 160, "encrypted-short": 80, "plain": 255}
NODE_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link", stat.S_IFIFO: "p",
              stat.S_IFSOCK: "s", stat.S_IFCHR: "c", stat.S_IFBLK: "b"}


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def from_base64url(text):
    """Raises Damage unless `text` is the canonical encoding of its bytes."""
    try:
        data = base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", True)
    except ValueError:
        data = None
    if data is None or base64url(data) != text:
        raise Damage("not base64url in its one form")
    return data


def padded(name):
    return name + bytes(-len(name) % 16)


def unpadded(data):
    name = data.rstrip(b"\0")
    if not name or padded(name) != data:
        raise Damage("a name with wrong padding")
    return name


def checked_name(name):
    if not 1 <= len(name) <= MAX_NAME or b"/" in name or b"\0" in name or name in (b".", b".."):
        raise Damage("not a name")
    return name


def open_at(directory, name, flags=0):
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=directory)


def open_file_at(directory, name):
    """Descriptor of a regular file, or None if it does not exist. Raises Damage if it is not a regular file."""
    try:
        fd = open_at(directory, name)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise Damage(f"{os.fsdecode(name)}: {e.strerror}") from None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise Damage(f"{os.fsdecode(name)} is no file")


def first_bytes(fd, length):
    """The first `length` bytes of a file, or all if it is shorter."""
    content = b""
    while len(content) < length:
        part = os.pread(fd, length - len(content), len(content))
        if not part:
            break
        content += part
    return content


def read_at(directory, name, limit):
    """Content of a regular file, or None if it does not exist. Raises Damage if it is another node or too long."""
    fd = open_file_at(directory, name)
    if fd is None:
        return None
    try:
        content = first_bytes(fd, limit + 1)
    finally:
        os.close(fd)
    if len(content) > limit:
        raise Damage(f"{os.fsdecode(name)} is too long")
    return content


def header_at(directory, name):
    """The first two sectors of a stored file. Raises Damage if it is not a regular file or is missing."""
    fd = open_file_at(directory, name)
    if fd is None:
        raise Damage(f"{os.fsdecode(name)} is gone")
    try:
        return first_bytes(fd, 2 * RECORD)
    finally:
        os.close(fd)


FILE, DIRECTORY, NAME, LINK_TARGET, LONG_TARGET, ATTRIBUTE_NAME, ATTRIBUTE, ATTRIBUTES = range(1, 9)


class FormerList:
    """Items that the former key is still accepted for. A missing or damaged block counts as empty."""

    def __init__(self, root, master, former):
        self.key, self.items = subkey(master, "former list"), set()
        try:
            fd = open_at(root, b"warpcrypt.former." + former.list.hex().encode())
        except OSError:
            return
        try:
            for k in range(-(-former.items // 255)):
                block = os.pread(fd, 4096, 4096 * k)
                bound = former.list + be(former.items, 8) + be(k, 8) + block[:4080]
                if len(block) < 4096:
                    break
                if kmac256(self.key, bound, 16, b"warpcrypt v2 former block") == block[4080:]:
                    self.items.update(block[at:at + 16] for at in range(0, 4080, 16))
        finally:
            os.close(fd)

    def accepts(self, kind, stored):
        return kmac256(self.key, bytes([kind]) + stored, 16, b"warpcrypt v2 former item") in self.items


class Entry:
    """A named entry of a directory; `master` is the key that authenticates its name."""

    def __init__(self, name, stored, status, master):
        self.name, self.stored, self.status, self.master = name, stored, status, master
        self.kind = NODE_KINDS[stat.S_IFMT(status.st_mode)]


class Directory:
    """An opened directory of the store."""

    def __init__(self, fd, dir_id):
        self.fd, self.id = fd, dir_id

    def close(self):
        os.close(self.fd)


class Vault:
    """A vault, opened for reading."""

    def __init__(self, path, secret):
        self.root_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        texts = []
        for name in (b"warpcrypt.json", b"warpcrypt.json.copy"):
            try:
                texts.append(read_at(self.root_fd, name, MAX_CONFIG))
            except Damage:
                texts.append(b"")
        self.config, self.master = choose_config(texts, secret)
        try:
            self.masters = self.config.master_keys(self.master)
        except Damage:
            raise VaultError("the former key does not open", EXIT_CONFIG) from None
        self.file_keys = lru_cache(256)(self._file_keys)
        self.former_list = None
        if self.config.former:
            self.former_list = FormerList(self.root_fd, self.master, self.config.former[0])
        self.rewrites = self._rewrites()

    # Rotation: what each key is accepted for.

    def _file_keys(self, generation, salt):
        if generation not in self.masters:
            raise Damage(f"of key generation {generation}, which the configuration does not have")
        return FileKeys(self.config, self.masters[generation], salt)

    def _name_masters(self):
        """Master keys that may protect names, links, ids and attributes, the current one first."""
        return [self.masters[generation] for generation in sorted(self.masters, reverse=True)]

    def _under_any(self, kind, stored, function):
        """Returns the first accepted result of `function(master)` for an item of this kind with this stored form.
        Raises the last Damage if there is none."""
        problem = None
        for master in self._name_masters():
            try:
                answer = function(master)
                if master != self.master and not self.former_list.accepts(kind, stored):
                    raise Damage("under the former key, and not on its list")
                return answer
            except Damage as e:
                problem = e
        raise problem

    def _accepts_record(self, record):
        """Whether this record is acceptable as a file's newest record."""
        return record.generation == self.config.key_generation or self.former_list.accepts(FILE, record.raw)

    def _rewrites(self):
        """Maps record sectors to names of rewrite files. Only those count whose sectors are both the same record of
        the current key generation."""
        found = {}
        if not self.config.former:
            return found
        for name in os.listdir(b"/proc/self/fd/%d" % self.root_fd):
            if name.startswith(REWRITE):
                try:
                    header = header_at(self.root_fd, name)
                    record = Record(header[:RECORD], self.file_keys)
                except (Damage, struct.error):
                    continue
                if header[RECORD:] == header[:RECORD] and record.generation == self.config.key_generation:
                    found[header[:RECORD]] = name
        return found

    def _in_place_of(self, stored):
        """The rewrite file that replaces a stored file, or the file itself."""
        sectors = [stored.read(at, RECORD) for at in (0, RECORD)]
        for sector, other in (sectors, sectors[::-1]):
            if sector in self.rewrites:
                if other != sector and any(other):
                    try:
                        if Record(other, self.file_keys).generation == self.config.key_generation:
                            continue
                    except Damage:
                        continue
                return Stored(open_at(self.root_fd, self.rewrites[sector]))
        return stored

    # Names

    def root(self):
        directory = Directory(os.dup(self.root_fd), None)
        directory.id = self._directory_id(directory.fd)
        if directory.id is None:
            raise Damage("the root's id is missing")
        return directory

    def _directory_id(self, fd):
        """The directory's id, or None if it is missing or blank."""
        content = read_at(fd, b"warpcrypt.dir", 32)
        if content is None or not any(content):
            return None
        if len(content) != 32:
            raise Damage("an id file of another length")

        def check(master):
            key = subkey(master, "directory ids")
            if kmac256(key, content[:16], 16, b"warpcrypt v2 directory id") != content[16:]:
                raise Damage("the directory's id does not authenticate")
            return content[:16]

        return self._under_any(DIRECTORY, content, check)

    def _name(self, directory, stored):
        """A name and its master key, or None for one of the vault's own entries. Raises Damage."""
        if self.config.names == "plain":
            if not stored.startswith(OWN):
                return checked_name(stored), self.master
            if not stored.startswith(PLAIN):
                return None
            if not stored[len(PLAIN):].startswith(OWN):
                raise Damage("an escaped name that needs no escape")
            return checked_name(stored[len(PLAIN):]), self.master
        if stored.startswith(OWN) and (not stored.startswith(LONG) or stored.endswith(b".name")):
            return None
        if directory.id is None:
            raise Damage("a name in a directory without an id")
        is_long = stored.startswith(LONG)
        if is_long:
            sealed = read_at(directory.fd, stored + b".name", 272)
            if sealed is None:
                raise Damage("a long name without a sidecar")
        else:
            sealed = from_base64url(stored)

        def check(master):
            if is_long:
                digest = kmac256(subkey(master, "long names"), sealed, 32, b"warpcrypt v2 long name")
                if stored != LONG + base64url(digest):
                    raise Damage("a long name of another sidecar")
            text = siv_open(self.config.cipher, subkey(master, "names"), [directory.id], sealed)
            name = checked_name(unpadded(text))
            if (len(name) > MAX_SHORT[self.config.names]) != is_long:
                raise Damage("a name in the wrong form")
            return name, master

        return self._under_any(NAME, stored, check)

    def _is_foreign(self, directory, stored):
        """Whether a name that does not authenticate belongs to another program, which is not damage."""
        if self.config.names == "plain" or stored.startswith(LONG):
            return False
        lengths = [-(-4 * (16 * blocks + 16) // 3) for blocks in range(MAX_SHORT[self.config.names] // 16, 0, -1)]
        if len(stored) not in lengths:
            return True
        for length in lengths:
            for at in range(len(stored) - length + 1 if length < len(stored) else 0):
                try:
                    if self._name(directory, stored[at:at + length]):
                        return True
                except Damage:
                    pass
        return False

    def entries(self, directory, problem):
        """Entries sorted by name. Calls `problem(stored name, Damage)` for each entry whose name is lost."""
        found = []
        for stored in sorted(os.listdir(b"/proc/self/fd/%d" % directory.fd)):
            try:
                named = self._name(directory, stored)
                if named:
                    status = os.stat(stored, dir_fd=directory.fd, follow_symlinks=False)
                    found.append(Entry(named[0], stored, status, named[1]))
            except Damage as e:
                if not self._is_foreign(directory, stored):
                    problem(stored, e)
        return sorted(found, key=lambda entry: entry.name)

    def enter(self, directory, entry):
        fd = open_at(directory.fd, entry.stored, os.O_DIRECTORY)
        try:
            dir_id = self._directory_id(fd)
            if dir_id is None and self.config.names != "plain":
                own = [n for n in os.listdir(b"/proc/self/fd/%d" % fd) if not n.startswith(OWN) or n.startswith(LONG)]
                if any(not stat.S_ISDIR(os.stat(n, dir_fd=fd, follow_symlinks=False).st_mode) for n in own):
                    raise Damage("entries without a directory id")
            return Directory(fd, dir_id)
        except BaseException:
            os.close(fd)
            raise

    # Files, links, attributes

    def open_file(self, directory, entry):
        stored = self._in_place_of(Stored(open_at(directory.fd, entry.stored)))
        return open_content(stored, self.file_keys, self._accepts_record)

    def salvage(self, directory, entry):
        stored = Stored(open_at(directory.fd, entry.stored))
        generations = [self.config.key_generation]
        if self.former_list and any(self.former_list.accepts(FILE, stored.read(at, RECORD)) for at in (0, RECORD)):
            generations = self.masters
        return salvage(stored, lambda salt: [self.file_keys(generation, salt) for generation in generations])

    def read_link(self, directory, entry):
        stored = os.readlink(entry.stored, dir_fd=directory.fd)
        if stored.startswith(LINK):
            data = from_base64url(stored[len(LINK):])
            if len(data) != 18:
                raise Damage("a long link of another length")
            try:
                links = open_at(self.root_fd, b"warpcrypt.links", os.O_DIRECTORY)
            except OSError as e:
                raise Damage(f"warpcrypt.links: {e.strerror}") from None
            try:
                sealed = read_at(links, base64url(data[:16]), MAX_TARGET + 16)
            finally:
                os.close(links)
            if sealed is None:
                raise Damage("a long link without its target")
            context, length = [b"long", data[:16]], int.from_bytes(data[16:], "big")
            listed = LONG_TARGET, sealed
        elif stored.startswith(OWN):
            raise Reserved("a link of a form that this reader does not know")
        else:
            data = from_base64url(stored)
            context, sealed, length = [data[:16]], data[16:], len(data) - 32
            listed = LINK_TARGET, stored
        target = self._under_any(
            *listed, lambda master: siv_open(self.config.cipher, subkey(master, "symlinks"), context, sealed))
        if len(target) != length or not target or b"\0" in target:
            raise Damage("a link to nothing")
        return target

    def _context(self, directory, entry, inner):
        """The context that attribute values are bound to, or None if the attributes count as absent."""
        if entry.kind == "file":
            content = self.open_file(directory, entry)
            return [b"file", content.salt] if content.salt else None
        if entry.kind == "directory":
            return [b"directory", inner.id] if inner.id else None
        if entry.kind == "link":
            return [b"link", os.readlink(entry.stored, dir_fd=directory.fd)]
        device = entry.status.st_rdev
        return [b"special", entry.kind.encode() + be(os.major(device), 4) + be(os.minor(device), 4)]

    def attributes(self, directory, entry, inner=None):
        """Extended attributes of an entry. For a directory, `inner` is the opened directory. Raises Damage."""
        context = self._context(directory, entry, inner)
        if context is None:
            return {}
        path = b"/proc/self/fd/%d/%s" % (directory.fd, entry.stored)
        prefix = "user.warpcrypt." if entry.kind in ("file", "directory") else "trusted.warpcrypt."
        found = {}
        try:
            stored_names = os.listxattr(path, follow_symlinks=False)
        except OSError:
            stored_names = []
        for stored in stored_names:
            form = stored[len(prefix):].encode("utf-8", "surrogateescape")
            if not stored.startswith(prefix):
                continue
            value = os.getxattr(path, stored, follow_symlinks=False)
            if form in (b"acl.access", b"acl.default"):
                name = b"system.posix_" + form.replace(b".", b"_")
            elif b"." in form:
                continue
            else:
                sealed = from_base64url(form)
                name = self._under_any(
                    ATTRIBUTE_NAME, b"user.warpcrypt." + form,
                    lambda m: unpadded(siv_open(self.config.cipher, subkey(m, "xattr names"), [], sealed)))
            found[name] = self._attribute_value(ATTRIBUTE, [*context, name], value)
        if context[0] in (b"file", b"directory"):
            found.update(self._listed_attributes(context))
        return found

    def _attribute_value(self, kind, context, stored):
        return self._under_any(kind, stored, lambda master: siv_open(
            self.config.cipher, subkey(master, "xattr values"), [*context, stored[:16]], stored[16:]))

    def _listed_attributes(self, context):
        try:
            lists = open_at(self.root_fd, b"warpcrypt.xattrs", os.O_DIRECTORY)
        except OSError:
            return {}
        try:
            content = None
            for master in self._name_masters():
                node = siv_seal(self.config.cipher, subkey(master, "xattr names"), [b"list"], context[0][:1] + context[1])
                content = content or read_at(lists, base64url(node), MAX_LIST + 32)
        finally:
            os.close(lists)
        if content is None:
            return {}
        text = self._attribute_value(ATTRIBUTES, [b"list", *context], content)
        found, at = {}, 0
        while at < len(text):
            end = at + 2 + int.from_bytes(text[at:at + 2], "big")
            name, start = text[at + 2:end], end + 4
            at = start + int.from_bytes(text[end:start], "big")
            if at > len(text) or not name:
                raise Damage("a list of attributes that ends too early")
            found[name] = text[start:at]
        return found


# ---------------------------------------------------------------------------------------------------------------------
# Commands


class Reader:
    """Carries out a command; damage is reported on standard error and counted."""

    def __init__(self, vault):
        self.vault, self.damaged = vault, 0

    def report(self, path, problem):
        self.damaged += 1
        print(f"vaultread: {os.fsdecode(path)}: {problem}", file=sys.stderr)

    def find(self, path):
        """Directory and entry of a path in the vault. The entry of the root is None."""
        directory = self.vault.root()
        parts = [part for part in os.fsencode(path).split(b"/") if part not in (b"", b".")]
        for at, part in enumerate(parts):
            entries = {entry.name: entry for entry in self.vault.entries(directory, lambda *_: None)}
            if part not in entries:
                raise VaultError(f"{path}: no such entry")
            if at + 1 == len(parts):
                return directory, entries[part]
            if entries[part].kind != "directory":
                raise VaultError(f"{path}: not a directory")
            inner = self.vault.enter(directory, entries[part])
            directory.close()
            directory = inner
        return directory, None

    def walk(self, visit, path=""):
        """Calls `visit(path, directory, entry, inner)` for everything below a path, parents first; `inner`
        is the opened directory. An entry that cannot be entered or named is reported."""
        directory, entry = self.find(path)
        pending = []
        if entry is None:
            pending.append((b"", directory))
        else:
            inner = self._visit(visit, os.fsencode(path).strip(b"/"), directory, entry)
            pending += [inner] if inner else []
        while pending:
            base, directory = pending.pop()
            prefix = base + b"/" if base else b""
            for entry in self.vault.entries(directory, lambda stored, e: self.report(prefix + stored, f"no name: {e}")):
                inner = self._visit(visit, prefix + entry.name, directory, entry)
                if inner:
                    pending.append(inner)
            directory.close()

    def _visit(self, visit, path, directory, entry):
        inner = None
        try:
            if entry.kind == "directory":
                inner = self.vault.enter(directory, entry)
            visit(path, directory, entry, inner)
        except (Damage, Reserved, OSError) as e:
            self.report(path, e)
        return (path, inner) if inner else None

    def list(self, path):
        def visit(name, directory, entry, inner):
            size, more = 0, ""
            if entry.kind == "file":
                size = self.vault.open_file(directory, entry).size
            elif entry.kind == "link":
                more = " -> " + os.fsdecode(self.vault.read_link(directory, entry))
            print(f"{stat.filemode(entry.status.st_mode)} {size:>12} {os.fsdecode(name)}{more}")

        self.walk(visit, path)

    def verify(self, path):
        def visit(name, directory, entry, inner):
            if entry.kind == "file":
                content = self.vault.open_file(directory, entry)
                for chunk in range(chunks_of(content.size)):
                    try:
                        content.chunk(chunk)
                    except Damage as e:
                        self.report(name, e)
            elif entry.kind == "link":
                self.vault.read_link(directory, entry)
            self.vault.attributes(directory, entry, inner)

        self.walk(visit, path)

    def _file(self, path):
        directory, entry = self.find(path)
        if entry is None or entry.kind != "file":
            raise VaultError(f"{path}: not a file")
        return directory, entry

    def cat(self, path, out):
        """Writes a file's content to `out`, up to the first chunk that does not verify."""
        content = self.vault.open_file(*self._file(path))
        for chunk in range(chunks_of(content.size)):
            out.write(content.chunk(chunk))

    def extract(self, path, target):
        """Copies everything below a path to a new directory. Damaged files are left out."""
        os.mkdir(target, 0o700)
        times = []

        def visit(name, directory, entry, inner):
            place = os.path.join(os.fsencode(target), name)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if entry.kind == "directory":
                os.mkdir(place, 0o700)
                times.append((place, entry.status))
            elif entry.kind == "link":
                os.symlink(self.vault.read_link(directory, entry), place)
            elif entry.kind == "file":
                self._extract_file(directory, entry, place)
            else:
                raise Damage("a special file, left out")
            if entry.kind in ("file", "directory"):
                for attribute, value in self.vault.attributes(directory, entry, inner).items():
                    if attribute.startswith(b"user."):
                        os.setxattr(place, attribute, value)

        self.walk(visit, path)
        for place, status in reversed(times):
            os.chmod(place, stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _extract_file(self, directory, entry, place):
        content = self.vault.open_file(directory, entry)
        fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(fd, "wb") as out:
                for chunk in range(chunks_of(content.size)):
                    text = content.chunk(chunk)
                    if any(text):
                        out.seek(chunk * CHUNK)
                        out.write(text)
                out.truncate(content.size)
                out.flush()
                os.fchmod(out.fileno(), stat.S_IMODE(entry.status.st_mode) & 0o777)
                os.utime(out.fileno(), ns=(entry.status.st_atime_ns, entry.status.st_mtime_ns))
        except Damage:
            os.unlink(place)
            raise

    def salvage(self, path, out):
        """Writes what the tags alone prove of a file. The rest is reported and filled with zeros."""
        chunks = self.vault.salvage(*self._file(path))
        for i, text in enumerate(chunks):
            if text is None:
                self.report(path, f"SALVAGE: bytes {i * CHUNK} to {(i + 1) * CHUNK - 1} are lost or a hole: zeros")
            elif len(text) < CHUNK and i + 1 < len(chunks):
                self.report(path, f"SALVAGE: chunk {i} is shorter than what follows it needs: zeros behind it")
            out.write((text or b"").ljust(CHUNK if i + 1 < len(chunks) else 0, b"\0"))
        print(f"vaultread: {path}: SALVAGE: may mix versions of the file, and may end too early or too late",
              file=sys.stderr)


def read_secret(arguments):
    def content(path):
        with open(path, "rb") as file:
            return file.read()

    key_file = content(arguments.key_file) if arguments.key_file else None
    if arguments.recovery_key_file:
        return Secret(recovery=recovery_key(content(arguments.recovery_key_file).decode(errors="replace")))
    if arguments.password_file:
        password = content(arguments.password_file).removesuffix(b"\n")
    elif key_file is None or arguments.ask_password:
        password = os.fsencode(getpass.getpass("Password: "))
    else:
        return Secret(key_file=key_file)
    return Secret(password=password, key_file=key_file)


def main():
    parser = argparse.ArgumentParser(description="Reads a warpcrypt vault without the program.")
    parser.add_argument("--password-file", metavar="FILE", help="the password, without the newline at the end")
    parser.add_argument("--key-file", metavar="FILE", help="the key file; with a password, both are needed")
    parser.add_argument("--ask-password", action="store_true", help="beside a key file, ask for a password")
    parser.add_argument("--recovery-key-file", metavar="FILE", help="a file with the recovery key")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_ in (("list", "all entries below a path"), ("verify", "read everything and report damage"),
                        ("cat", "a file's content, up to the first damage"), ("extract", "copy all below a path"),
                        ("salvage", "what is left of a damaged file, on standard output; not proven as a whole")):
        command = commands.add_parser(name, help=help_, description=help_)
        command.add_argument("vault")
        if name == "extract":
            command.add_argument("target", help="a new directory")
        command.add_argument("path", **({} if name in ("cat", "salvage") else {"nargs": "?", "default": ""}))
    arguments = parser.parse_args()
    try:
        reader = Reader(Vault(arguments.vault, read_secret(arguments)))
        if arguments.command in ("list", "verify"):
            getattr(reader, arguments.command)(arguments.path)
        elif arguments.command == "extract":
            reader.extract(arguments.path, arguments.target)
        else:
            getattr(reader, arguments.command)(arguments.path, sys.stdout.buffer)
            sys.stdout.flush()
    except Damage as e:
        print(f"vaultread: damage: {e}", file=sys.stderr)
        return EXIT_DAMAGE
    except (VaultError, OSError) as e:
        print(f"vaultread: {e}", file=sys.stderr)
        return getattr(e, "code", EXIT_OTHER)
    return EXIT_DAMAGE if reader.damaged else 0


if __name__ == "__main__":
    sys.exit(main())
