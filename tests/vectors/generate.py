#!/usr/bin/env python3
"""Writes second_opinion.json: answers of independent implementations, for tests/vectors/second_opinion.rs.

Made with Python 3.11, pycryptodome (AES, SHA-3, cSHAKE, KMAC, TurboSHAKE), gostcrypto (Kuznyechik) and
argon2-cffi (Argon2id, the reference implementation in C); the versions stand in the file's
"made_with". To make it again:

    python3 -m venv venv && venv/bin/pip install pycryptodome gostcrypto argon2-cffi
    venv/bin/python tests/vectors/generate.py > tests/vectors/second_opinion.json

Inputs are not random: byte i of the input number n is the lowest byte of 7 * n + 31 * i + i // 256.
"""

import json
import platform
import sys
from importlib.metadata import version

import gostcrypto
from argon2.low_level import Type, hash_secret_raw
from Crypto.Cipher import AES
from Crypto.Hash import (KMAC128, KMAC256, SHA3_224, SHA3_256, SHA3_384, SHA3_512, SHAKE128, SHAKE256,
                         TurboSHAKE128, TurboSHAKE256, cSHAKE128, cSHAKE256)
from Crypto.Util import Counter

# Around each rate and a chunk's size.
LENGTHS = [0, 1, 7, 8, 9, 15, 16, 17, 71, 72, 73, 103, 104, 105, 135, 136, 137, 143, 144, 145, 167, 168, 169,
           335, 336, 337, 4095, 4096]
# Data lengths of the CTR mode; the last three cross several batches of counter blocks.
CTR_LENGTHS = [1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 4095, 4096]
# Counters whose first blocks carry out of 32, 64 and 128 bits.
COUNTERS = ["00" * 16, "00" * 12 + "fffffffe", "0123456789abcdef" + "fffffffffffffffd", "ff" * 15 + "fc"]


def pattern(n, length):
    return bytes((7 * n + 31 * i + i // 256) & 0xFF for i in range(length))


def digest_of(data):
    """Long answers are kept as their SHA3-256."""
    return SHA3_256.new(data).hexdigest()


def kuznyechik_ecb(key, data):
    """gostcrypto, one block at a time: the mode around it is ours to test."""
    ecb = gostcrypto.gostcipher.new("kuznechik", key, gostcrypto.gostcipher.MODE_ECB,
                                    pad_mode=gostcrypto.gostcipher.PAD_MODE_1)
    return bytes(ecb.encrypt(bytearray(data)))[:len(data)]


def kuznyechik_ctr(key, counter, data):
    blocks = -(-len(data) // 16)
    counters = b"".join(((counter + i) % 2**128).to_bytes(16, "big") for i in range(blocks))
    return bytes(x ^ y for x, y in zip(data, kuznyechik_ecb(key, counters)))


def ctr_cases():
    for name, key_len in [("aes-128-ctr", 16), ("aes-192-ctr", 24), ("aes-256-ctr", 32), ("kuznyechik-ctr", 32)]:
        key = pattern(key_len, key_len)
        for hexed in COUNTERS:
            counter = int(hexed, 16)
            # The slow implementation answers for the lengths up to a batch's edge only.
            lengths = [n for n in CTR_LENGTHS if n <= 1025 or "aes" in name]
            for n in lengths:
                data = pattern(n, n)
                if name == "kuznyechik-ctr":
                    out = kuznyechik_ctr(key, counter, data)
                else:
                    ctr = Counter.new(128, initial_value=counter)
                    out = AES.new(key, AES.MODE_CTR, counter=ctr).encrypt(data)
                yield {"cipher": name, "key": key.hex(), "counter": hexed, "len": n, "sha3": digest_of(out)}


def ecb_cases():
    for name, key_len in [("aes-128-ctr", 16), ("aes-192-ctr", 24), ("aes-256-ctr", 32), ("kuznyechik-ctr", 32)]:
        key = pattern(key_len + 1, key_len)
        for blocks in [1, 3, 4, 5, 63, 64, 65]:
            data = pattern(blocks, blocks * 16)
            out = kuznyechik_ecb(key, data) if "aes" not in name else AES.new(key, AES.MODE_ECB).encrypt(data)
            yield {"cipher": name, "key": key.hex(), "len": len(data), "sha3": digest_of(out)}


def hash_cases():
    hashes = {"sha3-224": SHA3_224, "sha3-256": SHA3_256, "sha3-384": SHA3_384, "sha3-512": SHA3_512}
    xofs = {"shake128": SHAKE128, "shake256": SHAKE256}
    for n in LENGTHS:
        data = pattern(n, n)
        for name, module in hashes.items():
            yield {"function": name, "len": n, "out": module.new(data).hexdigest()}
        for name, module in xofs.items():
            yield {"function": name, "len": n, "out": module.new(data).read(40).hex()}


def custom_cases():
    for n in LENGTHS:
        data, custom, key = pattern(n, n), pattern(n + 1, n % 200), pattern(n + 2, 32)
        domain = 1 + n % 0x7F
        yield {"function": "cshake128", "len": n, "custom": custom.hex(),
               "out": cSHAKE128.new(data, custom).read(40).hex()}
        yield {"function": "cshake256", "len": n, "custom": custom.hex(),
               "out": cSHAKE256.new(data, custom).read(40).hex()}
        for name, module in [("kmac128", KMAC128), ("kmac256", KMAC256)]:
            for mac_len in [16, 32, 400]:
                mac = module.new(key=key, data=data, mac_len=mac_len, custom=custom)
                yield {"function": name, "len": n, "key": key.hex(), "custom": custom.hex(), "out": mac.hexdigest()}
        for name, module in [("turboshake128", TurboSHAKE128), ("turboshake256", TurboSHAKE256)]:
            yield {"function": name, "len": n, "domain": domain,
                   "out": module.new(data=data, domain=domain).read(400).hex()}


def left_encode(x):
    body = x.to_bytes(max(1, (x.bit_length() + 7) // 8), "big")
    return bytes([len(body)]) + body


def right_encode(x):
    body = left_encode(x)
    return body[1:] + body[:1]


def encode_string(s):
    return left_encode(len(s) * 8) + s


def bytepad(x, width):
    padded = left_encode(width) + x
    return padded + bytes(-len(padded) % width)


def keyed_turboshake_cases():
    """T of docs/format.md, written out over the library's TurboSHAKE128."""
    for n in LENGTHS:
        data, custom, key = pattern(n, n), pattern(n + 1, n % 200), pattern(n + 2, 32)
        for mac_len in [16, 32, 400]:
            out = keyed("turboshake128", key, custom, data, mac_len)
            yield {"function": "turboshake128", "len": n, "key": key.hex(), "custom": custom.hex(),
                   "out": out.hex()}


def keyed(function, key, custom, data, mac_len):
    """The MACs of one piece, by name."""
    if function == "turboshake128":
        message = (bytepad(encode_string(b"warpcrypt TurboSHAKE MAC") + encode_string(custom), 168)
                   + bytepad(encode_string(key), 168) + data + right_encode(mac_len * 8))
        return TurboSHAKE128.new(data=message, domain=0x4D).read(mac_len)
    module = {"kmac128": KMAC128, "kmac256": KMAC256}[function]
    return module.new(key=key, data=data, mac_len=mac_len, custom=custom).digest()


def integrity_of(function, key, custom, head, data, mac_len):
    """A vault's integrity functions, as docs/format.md words them."""
    if function != "turboshake128x4":
        return keyed(function, key, custom, head + data, mac_len)
    count = min(4, len(data) // 1000)
    values = b"".join(keyed("turboshake128", key, b"warpcrypt v2 lane", data[1000 * i:1000 * (i + 1)], 32)
                      for i in range(count))
    return keyed("turboshake128", key, custom, data[1000 * count:] + values + head + bytes([count]), mac_len)


def integrity_cases():
    """Around every lane, every block of a last input, and every length of a head."""
    lengths = [0, 1, 135, 136, 137, 999, 1000, 1001, 1135, 1136, 1137, 1999, 2000, 2048, 2999, 3000, 3999, 4000, 4001,
               4095, 4096, 5000]
    for function in INTEGRITIES:
        for n in lengths:
            key, custom, head = pattern(n + 2, 32), pattern(n + 1, n % 200), pattern(n + 3, [30, 12, 8, 0][n % 4])
            tag, digest = [integrity_of(function, key, custom, head, pattern(n, n), size) for size in (16, 32)]
            yield {"function": function, "len": n, "key": key.hex(), "custom": custom.hex(), "head": head.hex(),
                   "tag": tag.hex(), "digest": digest.hex()}


def ctr_mode(cipher, key, counter, data):
    if cipher == "kuznyechik-ctr":
        return kuznyechik_ctr(key, counter, data)
    return AES.new(key, AES.MODE_CTR, counter=Counter.new(128, initial_value=counter)).encrypt(data)


def be(value, size):
    return value.to_bytes(size, "big")


INTEGRITIES = ["kmac128", "kmac256", "turboshake128x4"]
KEY_LENGTHS = {"aes-128-ctr": 16, "aes-192-ctr": 24, "aes-256-ctr": 32, "kuznyechik-ctr": 32}


def file_cases():
    """File keys, a chunk, a hole, and the tree's MACs, as crates/crypto/src/{kdf,chunk}.rs describe them."""
    contents, salt, nonce = pattern(1, 32), pattern(2, 32), pattern(3, 10)
    keys = keyed("kmac256", contents, b"warpcrypt v2 file keys", salt, 96)
    mac_key, tree_key = keys[32:64], keys[64:]
    for cipher, key_len in KEY_LENGTHS.items():
        for integrity in INTEGRITIES:
            for n in [1, 16, 137, 138, 139, 1001, 4096]:
                index, epoch = 0x0123456789 + n, 0xABCDEF012345 - n
                counter = int.from_bytes(nonce, "big") << 48 | index * 256
                sealed = ctr_mode(cipher, keys[:key_len], counter, pattern(n, n))
                header = nonce + be(index, 8) + be(epoch, 8)
                tag = integrity_of(integrity, mac_key, b"warpcrypt v2 chunk", header + be(n, 4), sealed, 16)
                hole = integrity_of(integrity, mac_key, b"warpcrypt v2 hole", header + be(0, 4), b"", 16)
                tree = [integrity_of(integrity, tree_key, b"warpcrypt v2 " + use, pattern(5, 12), sealed, 32).hex()
                        for use in [b"leaf", b"node", b"record"]]
                yield {"cipher": cipher, "integrity": integrity, "contents": contents.hex(), "salt": salt.hex(),
                       "nonce": nonce.hex(), "index": index, "epoch": epoch, "len": n,
                       "sha3": digest_of(sealed), "tag": tag.hex(), "hole": hole.hex(), "tree": tree}


def siv_cases():
    """Sub-keys and deterministic encryption, as crates/crypto/src/{kdf,siv}.rs describe them."""
    key = pattern(4, 32)
    prf, encryption = [keyed("kmac256", key, b"warpcrypt v2 subkey", label, 32)
                       for label in [b"siv prf", b"siv encryption"]]
    for cipher, key_len in KEY_LENGTHS.items():
        for context in [[], [b""], [b"directory"], [b"one", b"", b"three"]]:
            for n in [0, 1, 16, 255]:
                plain = pattern(n, n)
                encoded = be(len(context), 8) + b"".join(be(len(part), 8) + part for part in context)
                iv = keyed("kmac256", prf, b"warpcrypt v2 siv", encoded + plain, 16)
                sealed = iv + ctr_mode(cipher, encryption[:key_len], int.from_bytes(iv, "big"), plain)
                yield {"cipher": cipher, "key": key.hex(), "context": [part.hex() for part in context], "len": n,
                       "sealed": sealed.hex()}


def password_cases():
    for memory_kib, passes, lanes in [(8, 1, 1), (64, 3, 1), (64, 2, 4), (4096, 1, 2)]:
        for n in [0, 1, 31, 200]:
            out = hash_secret_raw(secret=pattern(n, n), salt=pattern(5, 32), time_cost=passes,
                                  memory_cost=memory_kib, parallelism=lanes, hash_len=32, type=Type.ID)
            yield {"len": n, "salt": pattern(5, 32).hex(), "memory_kib": memory_kib, "passes": passes,
                   "lanes": lanes, "out": out.hex()}


def main():
    made_with = {"python": platform.python_version()}
    made_with |= {package: version(package) for package in ["pycryptodome", "gostcrypto", "argon2-cffi"]}
    sections = {"ctr": ctr_cases(), "ecb": ecb_cases(), "hash": hash_cases(), "custom": custom_cases(),
                "keyed_turboshake": keyed_turboshake_cases(), "integrity": integrity_cases(), "file": file_cases(), "siv": siv_cases(),
                "password": password_cases()}
    lines = [f'"made_with": {json.dumps(made_with)}']
    for name, cases in sections.items():
        rows = ",\n".join(json.dumps(case) for case in cases)
        lines.append(f'"{name}": [\n{rows}\n]')
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
