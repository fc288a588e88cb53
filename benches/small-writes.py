#!/usr/bin/env python3
"""Writes of every size on mounts that cache in different ways, one after the other in each round, medians at the end.

As root: benches/small-writes.py NAME=PROGRAM[:OPTION,…] … > table
  NAME=gocryptfs is the program of that name, NAME=plain:PROGRAM the unencrypted pass-through of `warpcrypt-bench`;
  options are those of `warpcrypt mount`.
  ROUNDS   how often (5)
  PLACE    where the stores and mounts lie (/dev/shm)
  ONLY     parts of the names of the rows to measure
Each time includes the fsync, or the close of many files, at the end. "cpu" is the processor time of the mount's process.
"""
import os, shutil, sqlite3, statistics, subprocess, sys, tempfile, threading, time
from pathlib import Path

MIB = 1 << 20
BLOCK = os.urandom(MIB)


def write_all(path, size, total, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    fd = os.open(path, flags, 0o600)
    block = BLOCK[:size]
    for _ in range(total // size):
        os.write(fd, block)
    os.fsync(fd)
    os.close(fd)


def blocks(place):
    write_all(place / "blocks", 4096, 256 * MIB)


def appends(place):
    write_all(place / "log", 100, 10_000_000, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def sqlite(place):
    db = sqlite3.connect(place / "db")
    db.execute("create table t (a integer primary key, b text)")
    db.executemany("insert into t values (?, ?)", ((n, "a row of some text %d" % n) for n in range(300_000)))
    db.commit()
    db.close()


def transactions(place):
    db = sqlite3.connect(place / "db2", isolation_level=None)
    db.execute("create table t (a integer primary key, b text)")
    for n in range(200):
        db.execute("insert into t values (?, ?)", (n, "a row of some text"))
    db.close()


def streams(count, each):
    def run(place):
        threads = [threading.Thread(target=write_all, args=(place / f"s{n}", MIB, each)) for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def synced(place):
    fd = os.open(place / "synced", os.O_WRONLY | os.O_CREAT, 0o600)
    for _ in range(1000):
        os.write(fd, BLOCK[:4096])
        os.fsync(fd)
    os.close(fd)


def here_and_there(place):
    fd = os.open(place / "blocks", os.O_RDWR)
    at = 1
    for _ in range(10_000):
        at = at * 48271 % 0x7FFFFFFF
        os.pwrite(fd, BLOCK[:4096], at % (256 * 256) * 4096)
    os.fsync(fd)
    os.close(fd)


def again(place):
    fd = os.open(place / "blocks", os.O_RDONLY)
    while os.read(fd, MIB):
        pass
    os.close(fd)


def written_and_read(place):
    fd = os.open(place / "both", os.O_RDWR | os.O_CREAT, 0o600)
    for n in range(40_000):
        os.pwrite(fd, BLOCK[:1000], n * 1000)
        if n % 4 == 0:
            os.pread(fd, 1000, n * 500)
    os.fsync(fd)
    os.close(fd)


def postgres(place):
    """pgbench's tables and 2,000 of its transactions; PostgreSQL does not run as root."""
    # The socket lies beside the mount: the pass-through has no sockets.
    home, socket = place / "postgres", place.parent / "socket"
    for folder in (home, socket):
        folder.mkdir()
        shutil.chown(folder, "postgres")
    steps = """
        PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
        initdb -D "$1/data" -A trust >&2
        pg_ctl -D "$1/data" -w -o "-k $2 -c listen_addresses=" -l "$1/log" start >&2
        pgbench -h "$2" -i -s 5 -q postgres >&2; pgbench -h "$2" -c 4 -t 500 postgres >&2
        pg_ctl -D "$1/data" -w stop >&2"""
    command = ["runuser", "-u", "postgres", "--", "sh", "-euc", steps, "sh", home, socket]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, cwd="/")


def sh(command):
    def run(place):
        subprocess.run(["sh", "-euc", command, "sh", place, TREE], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    return run


ROWS = [
    ("256 MiB in writes of 4 KiB", blocks),
    ("10,000 writes of 4 KiB here and there", here_and_there),
    ("that file read once more", again),
    ("100,000 appends of 100 bytes", appends),
    ("40,000 writes of 1000 bytes, every fourth read", written_and_read),
    ("SQLite, 300,000 rows in one transaction", sqlite),
    ("SQLite, 200 transactions", transactions),
    ("1,000 times 4 KiB and fsync", synced),
    ("256 MiB in writes of 1 MiB", streams(1, 256 * MIB)),
    ("4 such streams of 64 MiB", streams(4, 64 * MIB)),
    ("16 such streams of 16 MiB", streams(16, 16 * MIB)),
    ("cp of 256 MiB", sh('cp "$2"/../large "$1"/copy; sync "$1"/copy')),
    ("tar x of small files", sh('tar xf "$2"/../small.tar -C "$1"')),
    ("git add of them", sh('cd "$1"; git init -q; git add small')),
    ("sha256sum of them", sh('cd "$1/small"; find . -type f -print0 | xargs -0 sha256sum')),
    ("tar c of them", sh('tar cf - -C "$1" small | cat')),
    ("rm -r of them", sh('rm -r "$1/small"')),
    ("PostgreSQL: initdb, pgbench", postgres),
]


def small_files(place):
    """A tree like a project's: 3000 files of up to 30 KB."""
    tree = place / "small"
    for n in range(3000):
        folder = tree / f"d{n % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{n}").write_bytes(BLOCK[n : n + (n * 7919) % 30_000])
    subprocess.run(["tar", "cf", place / "small.tar", "-C", place, "small"], check=True)
    (place / "large").write_bytes(BLOCK * 256)
    return tree


class Mount:
    def __init__(self, place, program):
        self.place = Path(tempfile.mkdtemp(dir=place))
        self.server = None
        self.store, self.mount, key = self.place / "store", self.place / "mount", self.place / "key"
        self.place.chmod(0o755)
        self.mount.mkdir()
        key.write_bytes(os.urandom(32))
        if program == "gocryptfs":
            self.store.mkdir()
            run("gocryptfs", "-q", "-init", "-scryptn", "10", "-passfile", self.passfile(), self.store)
            run("gocryptfs", "-q", "-allow_other", "-passfile", self.passfile(), self.store, self.mount)
            self.end = ["fusermount3", "-u", self.mount]
        elif program.startswith("plain:"):
            self.store.mkdir()
            self.server = subprocess.Popen([program.removeprefix("plain:"), "plain", self.store, self.mount])
            while not os.path.ismount(self.mount):
                time.sleep(0.01)
            self.end = ["fusermount3", "-u", self.mount]
        else:
            program, _, options = program.partition(":")
            extra = ["-o", ",".join(filter(None, ["allow_other", options]))]
            run(program, "init", self.store, "--key-file", key)
            run(program, "mount", self.store, self.mount, "--key-file", key, "--engine", "cpu", *extra)
            self.end = [program, "umount", self.mount]
        # For PostgreSQL's user: a vault's own is 0700.
        self.mount.chmod(0o755)
        self.process = self.find()

    def passfile(self):
        path = self.place / "password"
        path.write_text("correct horse\n")
        return path

    def find(self):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if str(self.mount).encode() in line:
                return process
        return None

    def used(self):
        fields = (self.process / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def finish(self):
        run(*self.end)
        if self.server:
            self.server.wait()
        while self.process.exists():
            time.sleep(0.01)
        shutil.rmtree(self.place)


def run(*command):
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)


def main():
    global TREE
    contenders = [argument.split("=", 1) for argument in sys.argv[1:]]
    place = Path(tempfile.mkdtemp(prefix="small-writes-", dir=os.environ.get("PLACE", "/dev/shm")))
    place.chmod(0o755)
    only = os.environ.get("ONLY", "").split(",")
    rows = [(name, work) for name, work in ROWS if any(part in name for part in only)]
    seen = {}
    try:
        TREE = small_files(place)
        for number in range(int(os.environ.get("ROUNDS", "5"))):
            turn = number % len(contenders)
            for label, program in contenders[turn:] + contenders[:turn]:
                mount = Mount(place, program)
                for name, work in rows:
                    before, start = mount.used(), time.monotonic()
                    work(mount.mount)
                    seen.setdefault((name, label), []).append((time.monotonic() - start, mount.used() - before))
                start = time.monotonic()
                mount.finish()
                seen.setdefault(("unmount", label), []).append((time.monotonic() - start, 0))
            print(f"round {number + 1}", file=sys.stderr)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("| seconds (cpu) | " + " | ".join(label for label, _ in contenders) + " |")
    print("| --- |" + " --- |" * len(contenders))
    for name in [name for name, _ in rows] + ["unmount"]:
        cells = []
        for label, _ in contenders:
            took = [statistics.median(column) for column in zip(*seen[name, label])]
            cells.append(f"{took[0]:.2f} ({took[1]:.2f})")
        print(f"| {name} | " + " | ".join(cells) + " |")


main()
