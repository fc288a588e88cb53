#!/usr/bin/env python3
"""Writes hashes.json: MD6 and KangarooTwelve by independent implementations, for tests/vectors/second_opinion.rs.

MD6 by the authors' reference implementation in C (md6_c_code-2009-04-15.zip, also in the source of the
crate `md6` 2.0.3), KangarooTwelve by pycryptodome. To make it again:

    gcc -O2 -shared -fPIC -o libmd6.so md6_compress.c md6_mode.c md6_compression_hook.c
    python3 -m venv venv && venv/bin/pip install pycryptodome
    venv/bin/python tests/vectors/generate_hashes.py ./libmd6.so > tests/vectors/hashes.json

Inputs are not random: byte i of the input number n is the lowest byte of 7 * n + 31 * i + i // 256.
"""

import ctypes
import json
import random
import sys
from importlib.metadata import version

from Crypto.Hash import KangarooTwelve

# Around a node of the tree (512 bytes), of the sequence (384), four and sixteen nodes, a part of a long message.
LENGTHS = [0, 1, 7, 8, 63, 64, 127, 128, 383, 384, 385, 511, 512, 513, 768, 1024, 2047, 2048, 2049, 4096, 8191, 8192,
           8193, 40000]
LONG = [(512 << 10) - 1, 512 << 10, (512 << 10) + 1, 3 << 20]


def pattern(n, length):
    return bytes((7 * n + 31 * i + i // 256) & 0xFF for i in range(length))


def md6(library, bits, data, data_bits, key, levels, rounds):
    out = (ctypes.c_ubyte * 128)()
    status = library.md6_full_hash(bits, data + bytes(8), ctypes.c_uint64(data_bits), key or None, len(key), levels,
                                   rounds, out)
    assert status == 0, status
    return bytes(out[:(bits + 7) // 8]).hex()


def md6_cases(library):
    random.seed(6)
    for number in range(400):
        bits = random.choice([1, 7, 8, 9, 64, 128, 160, 224, 255, 256, 384, 511, 512, random.randint(1, 512)])
        length = random.choice(LENGTHS)
        unused = random.choice([0, 0, random.randint(0, 7)]) if length else 0
        key = pattern(number + 1, random.choice([0, 0, 1, 10, 63, 64]))
        levels = random.choice([64, 64, 0, 1, 2, 3])
        standard = max(40 + bits // 4, 80 if key else 0)
        rounds = random.choice([standard, standard, 0, 1, 5, 11, 12, 255])
        digest = md6(library, bits, pattern(number, length), 8 * length - unused, key, levels, rounds)
        yield {"n": number, "len": length, "unused": unused, "bits": bits, "key": key.hex(), "levels": levels,
               "rounds": rounds, "digest": digest}
    for length in LONG:
        data = pattern(length, length)
        yield {"n": length, "len": length, "unused": 0, "bits": 256, "key": "", "levels": 64, "rounds": 104,
               "digest": md6(library, 256, data, 8 * length, b"", 64, 104)}


def k12_cases():
    for length in LENGTHS + LONG:
        digest = KangarooTwelve.new(data=pattern(length, length)).read(32)
        yield {"n": length, "len": length, "digest": digest.hex()}


cases = {
    "made_with": {"md6": "reference implementation, 2009-04-15", "pycryptodome": version("pycryptodome")},
    "md6": list(md6_cases(ctypes.CDLL(sys.argv[1]))),
    "k12": list(k12_cases()),
}
print(json.dumps(cases, indent=None, separators=(", ", ": ")).replace("}, {", "},\n{"))
