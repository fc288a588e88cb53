#!/usr/bin/env bash
# One vault, mounted with --shared by three clients of one store, all on this machine. Each client mounts
# the store separately, so the clients share no cache. Prints the rows of a table.
#
# As root: mount-scripts/shared.sh STORE [SECONDS of each load, 20]
#   gluster   package glusterfs-server: a volume of three bricks, replica 3. No other volume may be in
#   use
#   nfs       packages nfs-kernel-server and nfs-common, and a kernel with server and client: three
#   clients in
#             network namespaces. The machine may export nothing else; TMPDIR has to be on a filesystem
#             that can
#             be exported, such as ext4
#   ceph      packages ceph-mon, ceph-mgr, ceph-osd, ceph-mds, ceph-fuse and ceph-common: three OSDs,
#   pools of
#             three copies. No other cluster may be in use
#   WARPCRYPT is the program (target/release/warpcrypt). OPTIONS are mount options of the store that
#   replace
#   those of docs/stores.md.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=$(readlink -f "${WARPCRYPT:-$root/target/release/warpcrypt}")
store=${1:-}
seconds=${2:-20}
volume=warpcrypt-shared
failed=
case $store in
    gluster) part="a brick killed" ;;
    nfs) part="the server stopped" ;;
    ceph) part="an OSD killed" ;;
    *) echo "usage: shared.sh gluster|nfs|ceph [SECONDS]" >&2; exit 2 ;;
esac
place=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-shared-XXXXXX")
exec 3>&2 # Diagnostics that are not part of the table.

clean_up() {
    cd /
    for n in 1 2 3; do
        mountpoint -q "$place/mnt-$n" && umount -i -l "$place/mnt-$n"
        mountpoint -q "$place/store-$n" && umount -l "$place/store-$n"
    done
    "${store}_remove" >&2
    rm -rf --one-file-system "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

. "$root/mount-scripts/gluster.sh"
gluster_mount() { gluster_attach "$place/store-$1"; }
gluster_kill() { kill -9 "$(cat /var/run/gluster/vols/$volume/*"${place##*/}"-brick-2.pid)"; }
gluster_back() { gluster --mode=script volume start $volume force; }

. "$root/mount-scripts/ceph.sh"
ceph_mount() { ceph_attach "$place/store-$1"; }
ceph_kill() { kill -9 "$(cat "$place/run/osd.1.pid")"; }
ceph_back() { ceph_start osd 1; }

. "$root/mount-scripts/nfs.sh"
nfs_mount() { nfs_attach "$place/store-$1" "$1"; }
nfs_kill() { rpc.nfsd 0; }
nfs_back() { nfs_serve; }

row() { # NAME COMMAND...
    local name=$1 begin=$EPOCHREALTIME result=yes
    shift
    "$@" >"$place/said" 2>&1 || { result="no: $(tail -n 1 "$place/said")"; failed=1; }
    printf '| %s | %s | %.1f |\n' "$name" "$result" "$(bc <<<"$EPOCHREALTIME - $begin")"
}

attach() { "$program" mount --shared "$place/store-$1/vault" "$place/mnt-$1" --key-file "$place/key" --log-file "$place/log-$1"; }
server_of() { sed -n 's/.*warpcrypt\[\([0-9]*\)\].*/\1/p' "$place/log-$1" | tail -n 1; }

# A client's load, for `seconds` or until its mount ends. It writes numbers to its files, confirms each
# one, and records it outside the volume. It also reads the other clients' files, in which all bytes must
# belong to the same number.
cat >"$place/load.py" <<'END'
import os, random, sys, time
me, place, end = int(sys.argv[1]), sys.argv[2], time.time() + float(sys.argv[3])
mount = f"{place}/mnt-{me}"
notes = open(f"{place}/notes-{me}", "a", buffering=1)
lines = open(notes.name).read().split()
before = number = int(lines[-1]) if lines else 0
reads, shared, refused = 0, 0, 0
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
            try:
                write(f"{mount}/shared", me * 1000000 + number, 5000)
                check(f"{mount}/shared")
                shared += 1
            except BlockingIOError:
                refused += 1
except OSError as e:
    print(f"client {me}: {e}, after {number - before} writes")
    sys.exit(3)
print(f"client {me}: {number - before} writes, {reads} reads of others, {shared} of the shared file, EAGAIN {refused} times")
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
    cat "$place"/out-* >&3
    [ $bad = 0 ] || { tail -n 1 "$place"/out-*; return 1; }
}

kill_server() {
    sleep "$((seconds / 4))"
    "${store}_kill" >&3 2>&3
    sleep "$((seconds / 4))"
    "${store}_back" >&3 2>&3
}

kill_client() {
    sleep "$((seconds / 3))"
    killed=3
    kill -9 "$(server_of 3)"
}

# One client keeps a file open and writes to it continuously while another one writes to it too. Each
# write waits, or fails with EAGAIN after ten seconds. Afterwards a third client must see everything that
# was confirmed.
two_write_one() {
    python3 - "$place" >&3 <<'END'
import os, sys, threading, time
place, page = sys.argv[1], 4096
with open(f"{place}/mnt-1/both", "wb") as file:
    file.write(bytes(512 * page))
confirmed, longest, refused, done, errors = {}, [0, 0], 0, threading.Event(), []
def write(me, file, at, n):
    global refused
    begin, data = time.time(), b"%08d" % (me * 1000000 + n) * (page // 8)
    try:
        os.pwrite(file, data, at * page)
        confirmed[at] = data
    except BlockingIOError:
        refused += 1
        assert 9.5 < time.time() - begin, "refused too early"
    longest[me] = max(longest[me], time.time() - begin)
def first():
    try:
        file = os.open(f"{place}/mnt-1/both", os.O_WRONLY)
        n = 0
        while not done.is_set():
            write(0, file, n % 256, n)
            n += 1
            time.sleep(0.01)
        os.close(file)
    except OSError as e:
        errors.append(e)
writer = threading.Thread(target=first, daemon=True) # A daemon thread, so that it does not outlive a failed program.
writer.start()
time.sleep(1)
for n in range(10):
    file = os.open(f"{place}/mnt-2/both", os.O_WRONLY)
    write(1, file, 256 + n, n)
    os.close(file)
done.set()
writer.join()
assert not errors, errors
data = open(f"{place}/mnt-3/both", "rb").read()
for at, there in confirmed.items():
    assert data[at * page:(at + 1) * page] == there, f"page {at}"
assert len(data) == 512 * page and len(confirmed) > 10
print(f"two writers: the longest write took {longest[0]:.1f} and {longest[1]:.1f} s, {refused} refused")
END
}

# A lock on the stored file, taken through another client's store, simulates a client that holds a lease
# and does not release it.
locked_elsewhere() {
    local stored
    stored=$(find "$place/store-3/vault" -type f -size +1500k)
    python3 - "$stored" "$place/mnt-2/both" <<'END'
import fcntl, os, sys, time
with open(sys.argv[1], "r+b") as stored:
    fcntl.flock(stored, fcntl.LOCK_EX)
    file, begin = os.open(sys.argv[2], os.O_WRONLY), time.time()
    try:
        os.write(file, b"x")
        sys.exit("it was written")
    except BlockingIOError:
        took = time.time() - begin
assert 9.5 < took < 15, f"after {took:.1f} s"
os.write(file, b"y")
END
}

# Every client must see in every file what was last recorded for it, or something newer that was not yet
# confirmed. The killed client may have truncated one in order to rewrite it.
everything_is_there() {
    python3 - "$place" "$@" <<'END'
import sys
place, seen = sys.argv[1], sys.argv[2:]
emptied = {}
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
END
}

# A client loses its network connection while it writes, for longer than its leases at the server last
# (15 s).
cut_off() {
    killed=3
    sleep "$((seconds / 4))"
    ip -n $volume-3 link set far down
    sleep 30
    ip -n $volume-3 link set far up
}

new_notes() { : >"$place/notes-1"; : >"$place/notes-2"; : >"$place/notes-3"; }

kill_rest() { umount -i -l "$place/mnt-3"; attach 3; }

"${store}_make" >&2 || exit 1
for n in 1 2 3; do
    mkdir "$place/store-$n" "$place/mnt-$n" && "${store}_mount" $n || exit 1
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
row "one has a file open and writes, another writes to it" two_write_one
row "a file that is locked elsewhere: EAGAIN after ten seconds" locked_elsewhere
row "$part under load, and back" load "$seconds" kill_server
row "everything is there, for each" everything_is_there 1 2 3
row "a client killed under load" load "$seconds" kill_client
row "everything is there, for the others" everything_is_there 1 2
row "the killed one mounts again" kill_rest
row "everything is there, for each" everything_is_there 1 2 3
if [ "$store" = nfs ]; then
    row "a client cut off for 30 s under load" load $((seconds + 30)) cut_off
    row "everything is there, for each" everything_is_there 1 2 3
fi
row "load again" load 5
for n in 1 2 3; do row "client $n unmounts" "$program" umount "$place/mnt-$n"; done
row "check --full" "$program" check --full "$place/store-1/vault" --key-file "$place/key"
grep -h "damaged\|cannot be stored" "$place"/log-* >&2
[ -z "$failed" ]
