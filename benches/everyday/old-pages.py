#!/usr/bin/env python3
"""Whether mounts of one store ever give old pages of what another mount wrote.

benches/everyday/old-pages.py SECONDS DIRECTORY...

The directories are one and the same, each through another mount. A process for each writes and reads a few files. Whoever writes locks
a file (flock), cuts it to a page, writes all of it with a new number, then the first KiB of it once more, and syncs. Whoever reads
does so without the lock. If it finds more than one number in the page, of which it reads the first KiB before the rest, it
reads again under the lock: then there has to be one.
"""
import fcntl
import os
import random
import sys
import time

PAGE, HEAD, FILES = 4096, 1024, 4
SIZES = [PAGE + 8, PAGE + 800, PAGE + 16000, 332288]


def lock(file):
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.002)


def write(file, number):
    os.pwrite(file, b"d" * 512, 0)
    os.fdatasync(file)
    os.ftruncate(file, PAGE)
    os.pwrite(file, number * (random.choice(SIZES) // 8), 0)
    os.fdatasync(file)
    os.pwrite(file, b"d" * 512, 0)
    os.fdatasync(file)
    os.pwrite(file, number * (HEAD // 8), 0)
    os.fdatasync(file)


def numbers(file):
    """Those of the page, in the order of their places."""
    os.fstat(file)
    os.pread(file, HEAD, 0)
    os.fstat(file)
    head = os.pread(file, HEAD, 0)
    page = os.pread(file, PAGE, 0)
    return list(dict.fromkeys(part[at:at + 8] for part in (head, page) for at in range(0, len(part), 8)))


def run(me, directory, end):
    random.seed()
    written = read = old = 0
    while time.time() < end:
        file = os.open(f"{directory}/file-{random.randrange(FILES)}", os.O_RDWR | os.O_CREAT, 0o600)
        if random.random() < 0.2:
            lock(file)
            numbers(file)
            written += 1
            write(file, b"%d%07d" % (me, written))
        else:
            read += 1
            if len(numbers(file)) > 1:
                lock(file)
                found = numbers(file)
                if len(found) > 1:
                    old += 1
                    print(f"mount {me}: {found}, and then {numbers(file)}", flush=True)
            # In the order in which a vault reads.
            size = os.fstat(file).st_size
            parts = [(200704, 4096), (204800, 4096), (4096, 163840), (167936, 32768), (208896, 123392)]
            for at, length in parts if size > 300000 else [(4096, size)]:
                os.pread(file, length, at)
        os.close(file)
    print(f"mount {me}: {written} writes, {read} reads, {old} of them wrong", flush=True)
    os._exit(1 if old else 0)


end = time.time() + float(sys.argv[1])
processes = []
for me, directory in enumerate(sys.argv[2:], 1):
    pid = os.fork()
    if pid == 0:
        run(me, directory, end)
    processes.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes))
