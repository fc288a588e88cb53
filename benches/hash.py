#!/usr/bin/env python3
"""Compares `warpcrypt hash` with hashdeep and OpenSSL on files in memory, in one run, interleaved.

    benches/hash.py PROGRAM [--folder /dev/shm] [--rounds 5] [--theirs 5] [--small 100000] [--large 16]
        [--mib 32] [--gpu] > benches/results/NAME.md

It makes a tree of small files (4 KiB) and some large ones, hashes each with every program in turn, and prints
medians as tables: seconds, gigabytes per second, processor seconds, what the rate would be if all processors were
busy from the beginning to the end, and how many times as fast as the yardstick. The others take much longer than what
is measured here: --theirs says in how many of the rounds they take part. hashdeep and `warpcrypt` get a thread for
each processor, OpenSSL a process for each; those that are not there are left out. With --gpu, MD6 is hashed by the
processors, by the GPU, and by both.
"""

import argparse
import concurrent.futures
import datetime
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

CORES = len(os.sched_getaffinity(0))


def make(folder, count, size, each):
    """`count` files of `size` bytes of noise that begin differently, `each` of them in a folder."""
    noise = os.urandom(size)

    def write(number):
        with open(f"{folder}/{number // each:04}/{number % each:04}", "wb") as file:
            file.write(number.to_bytes(8))
            file.write(memoryview(noise)[8:])

    for number in range(0, count, each):
        os.makedirs(f"{folder}/{number // each:04}")
    with concurrent.futures.ThreadPoolExecutor(CORES) as threads:
        list(threads.map(write, range(count)))


def timed(command):
    """Wall and processor seconds of a command that must succeed."""
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begun
    if process.returncode != 0:
        sys.exit(f"{command} failed")
    return wall, usage.ru_utime + usage.ru_stime


def openssl(folder):
    # The processes that xargs waits for count as its own.
    return ["sh", "-c", f"find {folder} -type f | xargs -P {CORES} -n 2 openssl dgst -sha3-256"]


def table(title, size, theirs, ours, rounds, yardsticks):
    """Runs every command so many times of theirs and of ours, one after the other, and prints medians."""
    commands = theirs | ours
    results = {name: [] for name in commands}
    for number in range(max(rounds)):
        for name, command in commands.items():
            if number < rounds[name in ours]:
                print(f"{title}: round {number + 1} of {max(rounds)}: {name}", file=sys.stderr)
                results[name].append(timed(command))
    walls = {name: statistics.median(wall for wall, _ in runs) for name, runs in results.items()}
    cpus = {name: statistics.median(cpu for _, cpu in runs) for name, runs in results.items()}
    print(f"\n## {title}\n")
    heads = "".join(f" | times {name}, time | processor" for name in yardsticks)
    print(f"| program | s | GB/s | processor s | GB/s, all busy{heads} |")
    print("|---|" + "---:|" * (4 + 2 * len(yardsticks)))
    for name in commands:
        ratios = "".join(f" | {walls[y] / walls[name]:.1f} | {cpus[y] / cpus[name]:.1f}" for y in yardsticks)
        rate, busy = size / walls[name] / 1e9, size * CORES / cpus[name] / 1e9
        print(f"| {name} | {walls[name]:.3f} | {rate:.2f} | {cpus[name]:.2f} | {busy:.2f}{ratios} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--theirs", type=int, help="rounds of hashdeep and OpenSSL, if not as many")
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=16)
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--gpu", action="store_true")
    arguments = parser.parse_args()
    rounds = (arguments.theirs or arguments.rounds, arguments.rounds)
    with tempfile.TemporaryDirectory(prefix="warpcrypt-bench-", dir=arguments.folder) as place:
        small, large = f"{place}/small", f"{place}/large"
        make(small, arguments.small, 4096, 1000)
        make(large, arguments.large, arguments.mib << 20, 1000)
        with open("/proc/cpuinfo") as info:
            model = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
        today = datetime.datetime.now(datetime.timezone.utc).date()
        print(f"# Hashing files in memory\n\n{model}, {CORES} cores, Linux {platform.release()}, {today}; load average "
              f"at the start {os.getloadavg()[0]:.1f}. Medians of {rounds[1]} (of the others {rounds[0]}), interleaved; "
              f"`benches/hash.py`, files on {arguments.folder}.")
        ours = {f"warpcrypt {name}": ["-c", name] for name in ["k12", "sha3-256", "shake128", "md6-256"]}
        if arguments.gpu:
            del ours["warpcrypt md6-256"]
            engines = {"the processors": "cpu", "the GPU": "gpu", "both": "auto"}
            ours |= {f"warpcrypt md6-256, {who}": ["-c", "md6-256", "--engine", engine]
                     for who, engine in engines.items()}
        def theirs(algorithms, folder):
            if not shutil.which("hashdeep"):
                return {}
            return {f"hashdeep {name}": ["hashdeep", "-c", name, "-r", "-j", str(CORES), folder] for name in algorithms}
        def hashes(folder):
            return {name: [arguments.program, "hash", *options, folder] for name, options in ours.items()}
        commands = theirs(["md5", "sha1", "tiger", "sha256"], small)
        table(f"{arguments.small:,} files of 4 KiB", arguments.small * 4096, commands, hashes(small),
              rounds, list(commands)[:2])
        commands = theirs(["md5", "sha256"], large)
        if shutil.which("openssl"):
            commands["openssl sha3-256"] = openssl(large)
        size = arguments.large * (arguments.mib << 20)
        table(f"{arguments.large} files of {arguments.mib} MiB", size, commands, hashes(large),
              rounds, list(commands)[1:])


main()
