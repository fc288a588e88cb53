#!/usr/bin/env python3
"""Compares vaultread.py with the program that WARPCRYPT_TEST_PROGRAM names. tests/mounted/reader.rs runs it."""

import errno
import hashlib
import io
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stderr

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import vaultread  # noqa: E402

PROGRAM = os.environ.get("WARPCRYPT_TEST_PROGRAM", "warpcrypt")
PROVE = "PROVE" in os.environ
KEY = bytes(range(64))
CIPHERS = ("aes-128-ctr", "aes-192-ctr", "aes-256-ctr", "kuznyechik-ctr")
INTEGRITY = ("kmac128", "kmac256", "turboshake128x4")
NAMES = ("encrypted", "encrypted-short", "plain")


def pattern(length, seed=0):
    return bytes((i * 7 + i // 251 + seed) & 255 for i in range(length))


def is_mounted(path):
    with open("/proc/self/mountinfo", "rb") as table:
        return any(line.split()[4] == os.fsencode(path) for line in table)


class Place:
    """A vault in a temporary directory."""

    def __init__(self, *options):
        self.path = tempfile.mkdtemp(prefix="vaultread-")
        self.store, self.mount_point, self.key = (os.path.join(self.path, name) for name in ("store", "mnt", "key"))
        os.mkdir(self.mount_point)
        with open(self.key, "wb") as file:
            file.write(KEY)
        self.server = None
        self.ok("init", self.store, *options)

    def run(self, command, *arguments):
        log = ("--log-file", os.path.join(self.path, "log")) if command == "mount" else ()
        return subprocess.run([PROGRAM, command, *arguments, *log, "--key-file", self.key], capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=120)

    def ok(self, command, *arguments):
        done = self.run(command, *arguments)
        if done.returncode:
            raise AssertionError(f"{command}: {done.returncode}: {done.stderr.decode()}")
        return done

    def mount(self, *options):
        self.ok("mount", self.store, self.mount_point, *options)
        return self.mount_point

    def umount(self):
        subprocess.run([PROGRAM, "umount", self.mount_point], check=True, capture_output=True, timeout=120)

    def serve(self):
        """Mounts in the foreground, so that `kill` has a process."""
        self.server = subprocess.Popen([PROGRAM, "mount", "-f", self.store, self.mount_point, "--key-file", self.key],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not is_mounted(self.mount_point):
            if self.server.poll() is not None:
                raise AssertionError("the mount ended")
            time.sleep(0.01)
        return self.mount_point

    def kill(self):
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        subprocess.run([PROGRAM, "umount", "--force", self.mount_point], capture_output=True, timeout=120)
        if is_mounted(self.mount_point):
            subprocess.run(["umount", "-l", self.mount_point], capture_output=True, timeout=120)

    def vault(self):
        return vaultread.Vault(self.store, vaultread.Secret(key_file=KEY))

    def close(self):
        if is_mounted(self.mount_point):
            subprocess.run(["umount", "-l", self.mount_point], capture_output=True)
        shutil.rmtree(self.path, ignore_errors=True)


class Case(unittest.TestCase):
    def place(self, *options):
        place = Place(*options)
        self.addCleanup(place.close)
        return place


def file_content(vault, directory, entry):
    content = vault.open_file(directory, entry)
    return b"".join(content.chunk(i) for i in range(vaultread.chunks_of(content.size)))


def read_tree(vault):
    """Everything that the reader finds, by path; None for items reported as damaged."""
    found, reader = {}, vaultread.Reader(vault)

    def visit(path, directory, entry, inner):
        found[path] = None
        if entry.kind == "file":
            value = file_content(vault, directory, entry)
        elif entry.kind == "link":
            value = vault.read_link(directory, entry)
        else:
            value = entry.kind
        found[path] = (value, vault.attributes(directory, entry, inner))

    with redirect_stderr(io.StringIO()):
        reader.walk(visit)
    return found, reader.damaged


def plain_tree(root):
    """As above, for a plain tree."""
    found = {}
    root = os.fsencode(root)
    for at, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(at, name)
            if os.path.islink(path):
                value = os.readlink(path)
            elif os.path.isdir(path):
                value = "directory"
            else:
                with open(path, "rb") as file:
                    value = file.read()
            names = [n for n in os.listxattr(path, follow_symlinks=False) if n.startswith("user.")]
            found[os.path.relpath(path, root)] = (value, {os.fsencode(n): os.getxattr(path, n) for n in names})
    return found


class Primitives(unittest.TestCase):
    """The pure Python functions, compared with published test vectors."""

    def test_kuznyechik(self):
        key = bytes.fromhex("8899aabbccddeeff0011223344556677fedcba98765432100123456789abcdef")
        block = vaultread._kuznyechik_encryptor(key)(0x1122334455667700FFEEDDCCBBAA9988)
        self.assertEqual(block, 0x7F679D90BEBC24305A468D42B9D4EDCD)

    def test_aes(self):
        block = 0x00112233445566778899AABBCCDDEEFF
        answers = {16: 0x69C4E0D86A7B0430D8CDB78070B4C55A, 24: 0xDDA97CA4864CDFE06EAF70A0EC0D7191,
                   32: 0x8EA2B7CA516745BFEAFC49904B496089}
        for length, answer in answers.items():
            self.assertEqual(vaultread._aes_encryptor(bytes(range(length)))(block), answer)

    def test_keccak(self):
        for length in (0, 1, 135, 136, 137, 300):
            data = pattern(length)
            self.assertEqual(vaultread.sponge(136, 24, data, 0x06, 32), hashlib.sha3_256(data).digest())

    def test_kmac(self):
        key, custom = bytes(range(0x40, 0x60)), b"My Tagged Application"
        self.assertEqual(vaultread._kmac(168, key, bytes(range(4)), 32, custom).hex(),
                         "3b1fba963cd8b0b59e8c1a6d71888b7143651af8ba0a7070c0979e2811324aa5")
        self.assertEqual(vaultread._kmac(136, key, bytes(range(4)), 64, custom).hex(),
                         "20c570c31346f703c9ac36c61c03cb64c3970d0cfc787e9b79599d273a68d2f7"
                         "f69d4cc3de9d104a351689f27cf6f5951f0103f33f4f24871024d9c27773a8dd")

    def test_turboshake(self):
        self.assertEqual(vaultread.sponge(168, 12, b"", 0x1F, 32).hex(),
                         "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c")

    def test_packages_agree_with_plain_python(self):
        if vaultread.AES is None:
            self.skipTest("needs pycryptodome")
        data, key = pattern(5000), bytes(range(32))
        self.assertEqual(vaultread.kmac256(key, data, 96, b"x"), vaultread._kmac(136, key, data, 96, b"x"))
        self.assertEqual(vaultread.kmac128(key, data, 16, b"x"), vaultread._kmac(168, key, data, 16, b"x"))


class Matrix(Case):
    """The reader's results equal those of a mount."""

    def test_every_kind(self):
        for cipher in CIPHERS:
            for integrity in INTEGRITY:
                names = NAMES[(CIPHERS.index(cipher) + INTEGRITY.index(integrity)) % 3]
                with self.subTest(cipher=cipher, integrity=integrity, names=names):
                    self.one_kind("--cipher", cipher, "--integrity", integrity, "--names", names)

    def one_kind(self, *options):
        place = self.place(*options)
        root = place.mount()
        os.mkdir(f"{root}/directory")
        for name, content in {"empty": b"", "one": b"x", "chunk": pattern(4096), "chunks": pattern(9000, 3),
                              "l" * 161: b"long", "l" * 160: b"160", "s" * 81: b"81", "s" * 80: b"80", "m" * 16: b"16",
                              "warpcrypt.own": b"escaped", "directory/ä": b"inner"}.items():
            with open(f"{root}/{name}", "wb") as file:
                file.write(content)
        with open(f"{root}/sparse", "wb") as file:
            file.seek(300 << 10)
            file.write(pattern(5000))
        os.symlink("one", f"{root}/link")
        os.symlink("t" * 4000, f"{root}/long link")
        os.setxattr(f"{root}/one", "user.small", b"value")
        os.setxattr(f"{root}/one", "user.large", pattern(60000))
        os.setxattr(f"{root}/directory", "user.directory", b"of a directory")
        with open(f"{root}/cut", "wb") as file:
            file.write(pattern(20000))
            file.flush()
            os.fsync(file.fileno())
            file.truncate(10001)
        expected = plain_tree(root)
        place.umount()
        self.compare(place, expected)

    def compare(self, place, expected):
        found, damaged = read_tree(place.vault())
        self.assertEqual(damaged, 0)
        self.assertEqual(sorted(found), sorted(expected))
        for path, value in expected.items():
            self.assertEqual(found[path], value, path)


class Killed(Case):
    """The reader recovers dirty files in memory as the program does."""

    def test_kills(self):
        for round_ in range(40 if PROVE else 4):
            with self.subTest(round=round_):
                self.one_kill(random.Random(round_))

    def one_kill(self, choice):
        place = self.place("--integrity", choice.choice(INTEGRITY))
        root = place.serve()
        files = []
        for i in range(6):
            file = open(f"{root}/file {i}", "w+b", buffering=0)
            files.append(file)
            for _ in range(choice.randrange(1, 6)):
                file.seek(choice.randrange(60000))
                file.write(pattern(choice.randrange(1, 20000), choice.randrange(256)))
                step = choice.randrange(4)
                if step == 0:
                    os.fsync(file.fileno())
                elif step == 1:
                    file.truncate(choice.randrange(60000))
        for file in files[:3]:
            file.close()
        place.kill()
        for file in files[3:]:
            try:
                file.close()
            except OSError:
                pass
        found, damaged = read_tree(place.vault())
        self.assertEqual(damaged, 0)
        target = os.path.join(place.path, "exported")
        place.ok("export", place.store, target)
        self.assertEqual(found, plain_tree(target))


class Rotated(Case):
    """A rotation killed at any moment: the reader and the program agree on what each key is accepted for."""

    def furnished(self, *options):
        place = self.place(*options)
        root = place.mount()
        for i in range(3):
            directory = f"{root}/directory {i}"
            os.mkdir(directory)
            for name, content in {"chunks": pattern(9000, i), "l" * 161: b"long", "empty": b""}.items():
                with open(f"{directory}/{name}", "wb") as file:
                    file.write(content)
            os.symlink("chunks", f"{directory}/link")
            os.symlink("t" * 4000, f"{directory}/long link")
            os.setxattr(f"{directory}/chunks", "user.small", b"value")
            os.setxattr(directory, "user.directory", b"of a directory")
        with open(f"{root}/file", "wb") as file:
            file.write(b"the text")
        os.setxattr(f"{root}/file", "user.large", pattern(20000))
        expected = plain_tree(root)
        place.umount()
        return place, expected

    def begin(self, place, pause=None, until=None):
        """Begins a rotation, and kills it `pause` seconds after it takes effect, or once `until` holds.

        Without either, the rotation runs as far as it can."""
        new = os.path.join(place.path, "new key")
        with open(new, "wb") as file:
            file.write(KEY[::-1])
        command = [PROGRAM, "key", "rotate", place.store, "--key-file", place.key, "--new-key-file", new]
        rotate = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while rotate.poll() is None and not self.is_rotating(place):
            time.sleep(0.001)
        while until and rotate.poll() is None and not until():
            pass
        if pause is not None or until:
            time.sleep(pause or 0)
            rotate.kill()
        rotate.wait(120)
        os.rename(new, place.key)
        return self.is_rotating(place)

    def is_rotating(self, place):
        with open(os.path.join(place.store, "warpcrypt.json.copy"), "rb") as file:
            return b'"wrapped"' in file.read().partition(b'"former_keys"')[2].partition(b"]")[0]

    def vault(self, place):
        return vaultread.Vault(place.store, vaultread.Secret(key_file=KEY[::-1]))

    def test_kills(self):
        unfinished = 0
        for round_ in range(30 if PROVE else 3):
            with self.subTest(round=round_):
                choice = random.Random(round_)
                place, expected = self.furnished("--names", NAMES[round_ % 3])
                unfinished += self.begin(place, choice.choice((0, 0.01, 0.03)))
                found, damaged = read_tree(self.vault(place))
                self.assertEqual((damaged, found), (0, expected))
                target = os.path.join(place.path, "exported")
                place.ok("export", place.store, target)
                # Not every filesystem has space for the attributes.
                self.assertEqual(self.contents(plain_tree(target)), self.contents(expected))
        self.assertGreater(unfinished, 0)

    def test_a_rewrite_that_is_left_at_any_length(self):
        def rewrites():
            """Rewrite files of the large file. Others may hold the only remaining copy of a file."""
            found = []
            for name in os.listdir(place.store):
                try:
                    path = os.path.join(place.store, name)
                    if name.startswith("warpcrypt.rewrite.") and os.path.getsize(path) > 1 << 20:
                        found.append(path)
                except FileNotFoundError:
                    pass  # it already replaced the file
            return found

        left = []
        while not left:
            place, _ = self.furnished()
            with open(f"{place.mount()}/chunks", "wb") as file:
                file.write(pattern(1 << 20) * 16)
            place.umount()
            self.begin(place, until=rewrites)
            left = rewrites()
        # Only the header decides, so neither one byte more nor the maximum size makes the reader read to
        # the end.
        for length in (0, 1, 511, 1023, 1024, 1 << 40):
            os.truncate(left[0], length)
            vault = self.vault(place)
            entry = next(entry for entry in vault.entries(vault.root(), self.fail) if entry.name == b"file")
            self.assertEqual(file_content(vault, vault.root(), entry), b"the text")
            self.assertEqual(place.ok("cat", place.store, "file").stdout, b"the text")

    def contents(self, tree):
        return {path: value[0] for path, value in tree.items() if value}

    def test_an_older_file_is_not_accepted(self):
        place, _ = self.furnished()
        stored = self.stored(place, place.vault(), b"file")
        with open(stored, "rb") as file:
            older = file.read()
        with open(f"{place.mount()}/file", "r+b") as file:
            file.write(b"other")
        place.umount()
        # A damaged file keeps the rotation from finishing.
        vault = place.vault()
        directory = vault.root()
        inner = vault.enter(directory, vault.entries(directory, self.fail)[0])
        entry = next(entry for entry in vault.entries(inner, self.fail) if entry.name == b"chunks")
        with open(os.path.join(b"/proc/self/fd/%d" % inner.fd, entry.stored), "r+b") as file:
            file.seek(4096)
            file.write(b"damage")
        self.assertTrue(self.begin(place))
        with open(self.stored(place, self.vault(place), b"file"), "r+b") as file:
            file.truncate(0)
            file.write(older)
        vault = self.vault(place)
        directory = vault.root()
        entry = next(entry for entry in vault.entries(directory, self.fail) if entry.name == b"file")
        with self.assertRaisesRegex(vaultread.Damage, "not as it was"):
            vault.open_file(directory, entry)
        self.assertNotEqual(place.run("cat", place.store, "file").returncode, 0)

    def stored(self, place, vault, name):
        entry = next(entry for entry in vault.entries(vault.root(), self.fail) if entry.name == name)
        return os.path.join(os.fsencode(place.store), entry.stored)

    def test_without_its_list_nothing_is_accepted(self):
        place, _ = self.furnished()
        while not self.begin(place, 0):
            place.close()
            place, _ = self.furnished()
        lists = [name for name in os.listdir(place.store) if name.startswith("warpcrypt.former.")]
        self.assertEqual(len(lists), 1)
        with open(os.path.join(place.store, lists[0]), "r+b") as file:
            for at in range(4095, os.path.getsize(file.name), 4096):
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 1]))
        found, damaged = {}, 1
        try:
            found, damaged = read_tree(self.vault(place))
        except vaultread.Damage:
            pass
        target = os.path.join(place.path, "exported")
        done = place.run("export", place.store, target)
        self.assertEqual(damaged > 0, done.returncode != 0)
        exported = plain_tree(target) if os.path.isdir(target) else {}
        read, exported = self.contents(found), self.contents(exported)
        self.assertEqual(read, {path: exported.get(path) for path in read})


class Flips(Case):
    """One byte of a stored file is changed: mount, check, cat, export, hash and the reader agree."""

    def test_a_file_of_two_chunks(self):
        self.flips(lambda file: file.write(pattern(5000)), 50)

    def test_a_file_with_a_node_page_and_a_group_of_holes(self):
        def write(file):
            file.seek((48 + 64) * 4096)
            file.write(b"behind a group of holes")

        self.flips(write, 50)

    def test_files_with_other_tags_and_ciphers(self):
        for cipher, integrity in (("aes-128-ctr", "kmac128"), ("kuznyechik-ctr", "kmac256")):
            with self.subTest(cipher=cipher, integrity=integrity):
                self.flips(lambda file: file.write(pattern(5000)), 20, "--cipher", cipher, "--integrity", integrity)

    def test_an_empty_file_that_was_committed(self):
        def write(file):
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
            file.truncate(0)

        self.flips(write, 50)

    def test_a_dirty_file(self):
        place = self.place()
        with open(f"{place.serve()}/file", "w+b", buffering=0) as file:
            file.write(pattern(9000))
            os.fsync(file.fileno())
            file.seek(4096)
            file.write(pattern(6000, 5))
            os.fsync(file.fileno())
            place.kill()
            try:
                file.close()
            except OSError:
                pass
        original = self.only_stored(place)
        self.assertFalse(vaultread.Record(original[:512], place.vault().file_keys).is_clean)
        self.flips_of(place, original, 50)

    def test_a_file_that_was_never_committed(self):
        """A mount reads it as empty, because a crash may have left it that way. Other commands report damage, except
        for an empty stored file."""
        place = self.place()
        with open(f"{place.mount()}/file", "wb") as file:
            file.write(pattern(5000))
        place.umount()
        whole = self.only_stored(place)
        zeros = bytes(len(whole))
        lengths = [*range(1, 4096)] if PROVE else [1, 8, 511, 512, 1024, 1025, 4095]
        self.verdicts([b""], place)
        cut = [part[:length] for length in lengths for part in (whole, zeros)]
        blank = [zeros[:4096], zeros, zeros[:1024] + whole[1024:], zeros[:4096] + whole[4096:]]
        self.verdicts([*cut, *blank], place, mount_shows=b"")

    def only_stored(self, place):
        """Stored bytes of the only file in a vault."""
        vault = place.vault()
        stored = vault.entries(vault.root(), self.fail)[0].stored
        with open(os.path.join(os.fsencode(place.store), stored), "rb") as file:
            return file.read()

    def flips(self, write, sample, *options):
        place = self.place(*options)
        with open(f"{place.mount()}/file", "wb") as file:
            write(file)
        place.umount()
        self.flips_of(place, self.only_stored(place), sample)

    def flips_of(self, place, original, sample):
        used = [i for i in range(len(original)) if i < 1024 or any(original[i & ~63:(i | 63) + 1])]
        choice = random.Random(1)
        positions = sorted({*(used if PROVE else choice.sample(used, sample)), *choice.sample(range(len(original)), sample),
                            1, 3072, 4095})
        variants = []
        for at in positions:
            changed = bytearray(original)
            changed[at] ^= 1 << choice.randrange(8)
            variants.append(bytes(changed))
        for at in range(0, len(variants), 512):
            self.verdicts(variants[at:at + 512], place, positions[at:at + 512])

    def verdicts(self, variants, place, labels=None, mount_shows=None):
        """Stores each variant as a file. All commands must agree on which are damaged, and on the content read.
        `mount_shows` is the content that a mount reads if it differs."""
        root = place.mount()
        names = [f"v{i}" for i in range(len(variants))]
        for name in names:
            open(f"{root}/{name}", "wb").close()
        place.umount()
        vault = place.vault()
        directory = vault.root()
        entries = {entry.name.decode(): entry for entry in vault.entries(directory, self.fail)}
        for name, content in zip(names, variants):
            path = os.path.join(os.fsencode(place.store), entries[name].stored)
            with open(path, "wb") as file:
                for at in range(0, len(content), 4096):
                    if any(content[at:at + 4096]):
                        file.seek(at)
                        file.write(content[at:at + 4096])
                file.truncate(len(content))
        answers = {name: {} for name in names}
        for name in names:
            try:
                answers[name]["reader"] = file_content(vault, directory, entries[name])
            except vaultread.Damage:
                answers[name]["reader"] = None
        target = os.path.join(place.path, "exported")
        place.run("export", place.store, target)
        check = place.run("check", "--full", place.store)
        said = (check.stdout + check.stderr).decode()
        hashed = place.run("hash", "--vault", place.store, "--sum").stdout.decode().split("\n")
        hashes = {line.split()[-1].rsplit("/", 1)[-1]: line.split()[0] for line in hashed if line}
        place.mount("--read-only")
        for name in names:
            for command, base in (("export", target), ("mount", root)):
                try:
                    with open(f"{base}/{name}", "rb") as file:
                        answers[name][command] = file.read()
                except OSError:
                    answers[name][command] = None
        place.umount()
        cat_all = names if PROVE else names[:10]
        for name in cat_all:
            done = place.run("cat", place.store, name)
            answers[name]["cat"] = None if done.returncode else done.stdout
        shutil.rmtree(target, ignore_errors=True)
        different = []
        for i, name in enumerate(names):
            if mount_shows is not None:
                self.assertEqual(answers[name].pop("mount"), mount_shows)
            is_damaged = answers[name]["reader"] is None
            values = set(answers[name].values())
            in_check = f'"{name}"' in said
            digest = None if is_damaged else hashlib.sha3_256(answers[name]["reader"]).hexdigest()
            if len(values) != 1 or in_check != is_damaged or hashes.get(name) != digest:
                short = {key: value if value is None else len(value) for key, value in answers[name].items()}
                different.append((labels[i] if labels else i, short, "check: " + ("damaged" if in_check else "well"),
                                  "hash: " + ("well" if name in hashes else "damaged")))
        self.assertEqual(different, [], f"{len(different)} of {len(names)}; check said: {said[-600:]}")


def shown_tree(root):
    """Everything that programs can read below `root`, by path; None for damaged items and reserved forms."""
    def attempt(function):
        try:
            return function()
        except OSError as e:
            if e.errno not in (errno.EIO, errno.EOPNOTSUPP):
                raise
            return None

    def content(path):
        with open(path, "rb") as file:
            return file.read()

    def attributes(path):
        names = [n for n in os.listxattr(path, follow_symlinks=False) if n.startswith("user.")]
        return {os.fsencode(n): os.getxattr(path, n, follow_symlinks=False) for n in names}

    root = os.fsencode(root)
    found, pending = {}, [root]
    while pending:
        at = pending.pop()
        for name in attempt(lambda: os.listdir(at)) or []:
            path = os.path.join(at, name)
            mode = attempt(lambda: os.lstat(path).st_mode)
            if mode is None:
                value = None
            elif stat.S_ISLNK(mode):
                value = attempt(lambda: os.readlink(path))
            elif stat.S_ISDIR(mode):
                value = "directory" if attempt(lambda: os.listdir(path)) is not None else None
                if value:
                    pending.append(path)
            else:
                value = attempt(lambda: content(path))
            listed = attempt(lambda: attributes(path)) if value is not None else None
            found[os.path.relpath(path, root)] = (value, listed)
    return found


class Nodes(Case):
    """One byte outside file contents is changed: all commands agree on the verdict."""

    def small_vault(self, *options):
        place = self.place(*options)
        root = place.mount()
        with open(f"{root}/file", "wb") as file:
            file.write(b"content")
        os.setxattr(f"{root}/file", "user.small", b"value")
        os.setxattr(f"{root}/file", "user.large", pattern(60000))
        with open(f"{root}/{'l' * 200}", "wb") as file:
            file.write(b"under a long name")
        os.mkdir(f"{root}/directory")
        with open(f"{root}/directory/inner", "wb") as file:
            file.write(b"inner")
        os.symlink("target", f"{root}/link")
        os.symlink("t" * 4000, f"{root}/long link")
        place.umount()
        return place

    def test_configuration(self):
        place = self.small_vault()
        with open(f"{place.store}/warpcrypt.json", "rb") as file:
            original = file.read()

        def write(content):
            for name in ("warpcrypt.json", "warpcrypt.json.copy"):
                with open(f"{place.store}/{name}", "wb") as file:
                    file.write(content)

        for at, changed in self.flipped(original, 8):
            write(changed)
            self.agree(place, f"configuration, byte {at}")
        write(original)
        self.assertEqual(self.agree(place, "unchanged"), (True, False))

    def test_ids_sidecars_lists_and_long_links(self):
        place = self.small_vault()
        for at, names, files in os.walk(os.fsencode(place.store)):
            for name in files:
                path = os.path.join(at, name)
                unbound = (b"warpcrypt.json", b"warpcrypt.lock", b"warpcrypt.times")
                if (name.startswith(b"warpcrypt.") and not name.startswith(unbound)
                        and os.path.getsize(path) and (not name.startswith(b"warpcrypt.long.") or name.endswith(b".name"))
                        or b"warpcrypt.links" in at or b"warpcrypt.xattrs" in at):
                    self.content_flips(place, path)

    def test_change_times(self):
        place = self.small_vault()
        for content in (b"", b"x", bytes(100)):
            with open(f"{place.store}/warpcrypt.times", "wb") as file:
                file.write(content)
            self.assertEqual(self.agree(place, f"change times: {content}"), (True, False))

    def content_flips(self, place, path):
        with open(path, "rb") as file:
            original = file.read()
        for at, changed in self.flipped(original, 2):
            with open(path, "wb") as file:
                file.write(changed)
            answer = self.agree(place, f"{os.fsdecode(path)}, byte {at}")
            self.assertNotEqual(answer, (True, False), f"undetected: {path}, byte {at}")
        with open(path, "wb") as file:
            file.write(original)

    def test_names(self):
        place = self.small_vault()
        for at, names, files in os.walk(os.fsencode(place.store)):
            if b"warpcrypt." in at[len(place.store):]:
                continue
            for name in names + files:
                is_short = not name.startswith(b"warpcrypt.")
                if not is_short and not name.startswith(b"warpcrypt.long."):
                    continue
                for byte, changed in self.flipped(name, 2 if is_short else 3):
                    if b"/" in changed or b"\0" in changed:
                        continue
                    os.rename(os.path.join(at, name), os.path.join(at, changed))
                    answer = self.agree(place, f"name {name}, byte {byte}")
                    if is_short:
                        self.assertEqual(answer, (True, True), f"undetected: {name}, byte {byte}")
                    os.rename(os.path.join(at, changed), os.path.join(at, name))

    def test_names_of_other_programs(self):
        place = self.small_vault()
        vault = place.vault()
        stored = vault.entries(vault.root(), self.fail)[0].stored
        for name in (b".DS_Store", stored + b" (conflicted copy)", stored + b" (conflicted copy 12)", stored + b"x" * 21):
            path = os.path.join(os.fsencode(place.store), name)
            with open(path, "wb") as file:
                file.write(b"x")
            self.assertEqual(self.agree(place, name), (True, False))
            os.unlink(path)

    def test_names_of_every_form_by_length(self):
        for mode, lengths in (("encrypted", (43, 128, 150, 235)), ("encrypted-short", (43, 128))):
            place = self.small_vault("--names", mode)
            for length in (42, 43, 127, 128, 129, 150, 235, 236):
                path = os.path.join(place.store, "A" * length)
                with open(path, "wb") as file:
                    file.write(b"x")
                with self.subTest(mode=mode, length=length):
                    self.assertEqual(self.agree(place, f"{length} bytes"), (True, length in lengths))
                os.unlink(path)

    def test_links_and_attributes(self):
        place = self.small_vault()
        store = os.fsencode(place.store)
        for name in os.listdir(store):
            path = os.path.join(store, name)
            if os.path.islink(path):
                original = os.readlink(path)
                forms = (vaultread.LINK + b"x", vaultread.OWN + b"later.x")
                for at, changed in [*self.flipped(original, 2), *enumerate(forms)]:
                    if b"\0" in changed:
                        continue
                    os.unlink(path)
                    os.symlink(changed, path)
                    self.assertEqual(self.agree(place, f"link {original}, byte {at}"), (True, True), f"{original}, byte {at}")
                os.unlink(path)
                os.symlink(original, path)
                continue
            for attribute in os.listxattr(path):
                original = os.getxattr(path, attribute)
                if attribute.startswith("user.warpcrypt.") and len(attribute) > 40:
                    for at, changed in self.flipped(original, 2):
                        os.setxattr(path, attribute, changed)
                        answer = self.agree(place, f"attribute {attribute}, byte {at}")
                        self.assertEqual(answer, (True, True), f"attribute, byte {at}")
                    os.setxattr(path, attribute, original)

    def flipped(self, original, sample):
        """Yields positions, and `original` with one bit flipped there: all positions with PROVE, else a sample and
        the last one."""
        choice = random.Random(len(original))
        every = range(len(original))
        for at in every if PROVE else sorted({*choice.sample(every, min(sample, len(every))), len(original) - 1}):
            changed = bytearray(original)
            changed[at] ^= 1 << choice.randrange(8)
            yield at, bytes(changed)

    def agree(self, place, label):
        """Whether the vault opens, and whether anything is damaged. Asserts that all commands agree on that and on
        the content."""
        target = os.path.join(place.path, "exported")
        codes = {"check": place.run("check", "--full", place.store).returncode,
                 "export": place.run("export", place.store, target).returncode,
                 "cat": place.run("cat", place.store, "file").returncode}
        hashed = place.run("hash", "--vault", place.store, "--sum")
        codes["hash"] = hashed.returncode
        mounted = place.run("mount", place.store, place.mount_point, "--read-only")
        codes["mount"] = mounted.returncode
        try:
            found, damaged = read_tree(place.vault())
        except (vaultread.VaultError, vaultread.Damage) as e:
            found, damaged = None, str(e)
        try:
            if found is None:
                self.assertTrue(all(code not in (0, 41) or name == "check" and code for name, code in codes.items()),
                                f"{label}: reader refuses ({damaged}), {codes}, {mounted.stderr}")
                return False, True
            shown = shown_tree(place.mount_point)
            exported = shown_tree(target)
        finally:
            if codes["mount"] == 0:
                place.umount()
            shutil.rmtree(target, ignore_errors=True)
        self.assertEqual(codes["mount"], 0, f"{label}: {codes}, {mounted.stderr}")
        told = (label, codes, {path: value is None for path, value in found.items()}, damaged)
        for path in {*found, *shown}:
            if found.get(path) is None:
                self.assertIn(None, shown.get(path, (None, None)), told)
            else:
                # The target filesystem of the export may have no space for attributes.
                self.assertEqual((shown.get(path), exported.get(path, (None,))[0]), (found[path], found[path][0]), told)
        self.assertEqual((codes["check"], codes["export"]), (41, 41) if damaged else (0, 0), told)
        contents = {path: value[0] for path, value in shown.items() if value[0] not in (None, "directory") and b"link" not in path}
        hashes = dict(line.split(b"  ", 1)[::-1] for line in hashed.stdout.split(b"\n") if line)
        self.assertEqual({os.path.basename(path): digest for path, digest in hashes.items()},
                         {os.path.basename(path): hashlib.sha3_256(value).hexdigest().encode() for path, value in contents.items()}, told)
        self.assertEqual(codes["cat"] == 0, b"file" in contents, told)
        self.assertTrue(damaged or codes["hash"] == 0, told)
        return True, bool(damaged)


if __name__ == "__main__":
    unittest.main()
