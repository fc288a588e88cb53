#!/usr/bin/env bash
# One vault, mounted with --shared by three clients of a GlusterFS volume: three bricks, replica 3, all of it on this machine.
# Each client has a mount of the volume by itself, so what one has cached the others do not know. Prints the rows of a table.
#
# As root: mount-scripts/shared.sh [SECONDS of each load, 20]
#   Needs the package glusterfs-server, and that no other volume is in use. WARPCRYPT is the program (target/release/warpcrypt).
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=$(readlink -f "${WARPCRYPT:-$root/target/release/warpcrypt}")
place=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-shared-XXXXXX")
seconds=${1:-20}
volume=warpcrypt-shared
host=$(hostname)
failed=

clean_up() {
    cd /
    for n in 1 2 3; do
        mountpoint -q "$place/mnt-$n" && umount -i -l "$place/mnt-$n"
        mountpoint -q "$place/store-$n" && umount -l "$place/store-$n"
    done
    gluster --mode=script volume stop $volume force >&2 && gluster --mode=script volume delete $volume >&2
    rm -rf --one-file-system "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

row() { # NAME COMMAND...
    local name=$1 begin=$EPOCHREALTIME result=yes
    shift
    "$@" >"$place/said" 2>&1 || { result="no: $(tail -n 1 "$place/said")"; failed=1; }
    printf '| %s | %s | %.1f |\n' "$name" "$result" "$(bc <<<"$EPOCHREALTIME - $begin")"
}

attach() { "$program" mount --shared "$place/store-$1/vault" "$place/mnt-$1" --key-file "$place/key" --log-file "$place/log-$1"; }
server_of() { sed -n 's/.*warpcrypt\[\([0-9]*\)\].*/\1/p' "$place/log-$1" | tail -n 1; }

# What a client does until it is told to stop: files of its own with numbers, each confirmed, noted outside of the volume; and reads
# of the others' files, all of whose bytes have to be of one number. `seconds` long, or until it meets the end of its mount.
cat >"$place/load.py" <<'END'
import os, random, sys, time
me, place, end = int(sys.argv[1]), sys.argv[2], time.time() + float(sys.argv[3])
mount = f"{place}/mnt-{me}"
notes = open(f"{place}/notes-{me}", "a", buffering=1)
number, reads, shared = 0, 0, 0
def path(who, n): return f"{mount}/client-{who}/file-{n}"
def write(name, number, size):
    with open(name, "wb") as file:
        file.write(b"%08d" % number * size)
        file.flush()
        os.fsync(file.fileno())
def check(name):
    with open(name, "rb") as file:
        data = file.read()
    assert len(data) % 8 == 0, f"{name}: {len(data)} bytes"
    for chunk in range(0, len(data), 4096):
        part = data[chunk:chunk + 4096]
        assert part == part[:8] * (len(part) // 8), f"{name}: two numbers in a chunk"
    return data
os.makedirs(f"{mount}/client-{me}", exist_ok=True)
try:
    while time.time() < end:
        n = random.randrange(12)
        number += 1
        write(path(me, n), number, random.choice([1, 100, 2000, 40000]))
        notes.write(f"{n} {number}\n")
        other = random.choice([1, 2, 3])
        name = path(other, random.randrange(12))
        try:
            check(name)
            reads += 1
        except FileNotFoundError:
            pass
        if number % 10 == 0:
            write(f"{mount}/shared", me * 1000000 + number, 5000)
            check(f"{mount}/shared")
            shared += 1
except OSError as e:
    print(f"client {me}: {e}, after {number} writes")
    sys.exit(3)
print(f"client {me}: {number} writes, {reads} reads of others, {shared} of the shared file")
END

load() { # SECONDS [HOW TO DISTURB]
    local pids=() n bad=0
    for n in 1 2 3; do python3 "$place/load.py" $n "$place" "$1" >"$place/out-$n" 2>&1 & pids+=($!); done
    [ $# -lt 2 ] || "$2"
    for n in 0 1 2; do
        wait "${pids[$n]}"
        local code=$?
        # A client that was killed ends with an error.
        [ $code = 0 ] || { [ "$code" = 3 ] && [ "${killed:-}" = $((n + 1)) ]; } || bad=1
    done
    cat "$place"/out-* >&2
    [ $bad = 0 ] || { tail -n 1 "$place"/out-*; return 1; }
}

kill_brick() {
    sleep "$((seconds / 4))"
    kill -9 "$(cat /var/run/gluster/vols/$volume/*"${place##*/}"-brick-2.pid)"
    sleep "$((seconds / 4))"
    gluster --mode=script volume start $volume force >&2
}

kill_client() {
    sleep "$((seconds / 3))"
    killed=3
    kill -9 "$(server_of 3)"
}

# Every client sees in every file what was noted last of it, or something newer that was not confirmed any more: the client that was
# killed may have emptied one to write it anew.
everything_is_there() {
    python3 - "$place" "$@" <<'END'
import sys
place, seen = sys.argv[1], sys.argv[2:]
count, emptied = 0, {}
for who in (1, 2, 3):
    last = {}
    for line in open(f"{place}/notes-{who}"):
        n, number = line.split()
        last[n] = int(number)
    for me in seen:
        for n, number in last.items():
            data = open(f"{place}/mnt-{me}/client-{who}/file-{n}", "rb").read()
            if not data and who == 3 and me not in emptied:
                emptied[me] = n
                continue
            found = int(data[:8])
            assert found >= number and data[:8] * (len(data) // 8) == data, f"client {who}, file {n}: {found} of {number}"
            count += 1
print(count, file=sys.stderr)
END
}

new_notes() { : >"$place/notes-1"; : >"$place/notes-2"; : >"$place/notes-3"; }

kill_rest() { umount -i -l "$place/mnt-3"; attach 3; }

pgrep -x glusterd >/dev/null || { glusterd && sleep 3; }
gluster --mode=script volume create $volume replica 3 "$host":"$place"/brick-{1,2,3} force >&2 || exit 1
# Nothing of a file may be kept by a client that others have changed, and locks must not outlive who has them.
for option in performance.quick-read performance.io-cache performance.stat-prefetch performance.open-behind \
    performance.readdir-ahead performance.read-ahead performance.write-behind; do
    gluster --mode=script volume set $volume $option off >&2
done
gluster --mode=script volume set $volume client.strict-locks on >&2
gluster --mode=script volume start $volume >&2 && sleep 2
for n in 1 2 3; do
    mkdir "$place/store-$n" "$place/mnt-$n"
    mount -t glusterfs -o attribute-timeout=0,entry-timeout=0,direct-io-mode=enable "$host:/$volume" "$place/store-$n" || exit 1
done
head -c 64 /dev/urandom >"$place/key"

row init "$program" init "$place/store-1/vault" --key-file "$place/key"
for n in 1 2 3; do row "client $n mounts" attach $n; done
new_notes
row "each writes its own, all read all, all write one: $seconds s" load "$seconds"
row "everything is there, for each" everything_is_there 1 2 3
row "cp -a of 100 files by one" bash -c 'mkdir "$0/mnt-1/tree" && cp -a $(ls -d /usr/include/linux/*.h | head -n 100) "$0/mnt-1/tree"' "$place"
row "another compares them" bash -c 'cd "$0/mnt-2/tree" && for f in *; do cmp "$f" "/usr/include/linux/$f" || exit 1; done' "$place"
row "a third removes them" rm -r "$place/mnt-3/tree"
row "a brick killed under load, and back" load "$seconds" kill_brick
row "everything is there, for each" everything_is_there 1 2 3
row "a client killed under load" load "$seconds" kill_client
row "everything is there, for the others" everything_is_there 1 2
row "the killed one mounts again" kill_rest
row "everything is there, for each" everything_is_there 1 2 3
row "load again" load 5
for n in 1 2 3; do row "client $n unmounts" "$program" umount "$place/mnt-$n"; done
row "check --full" "$program" check --full "$place/store-1/vault" --key-file "$place/key"
grep -h "damaged\|cannot be stored" "$place"/log-* >&2
[ -z "$failed" ]
