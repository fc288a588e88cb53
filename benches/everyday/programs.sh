#!/usr/bin/env bash
# Large programs on a mounted vault, each to its end and with its own verification: git, PostgreSQL, podman, and a C project with
# its tests. Prints the rows of a table; standard error has what each of them said.
#
# As root: benches/everyday/programs.sh [NAME...]
#   WARPCRYPT   the program (target/release/warpcrypt)
#   SOURCES     a directory with the original sources of Debian's zlib and sqlite3 (apt-get source --download-only)
#   REPOSITORY  a git repository to clone (this one)
#   TMPDIR      where the vault lies: 3 GB of room
# Needs the packages git, postgresql, podman, gcc, make, tcl-dev. nfs is not tried unless it is named: it needs nfs-kernel-server,
# fio, a kernel with nfsd, and a machine that exports nothing else.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$(readlink -f "${WARPCRYPT:-$root/target/release/warpcrypt}")
SOURCES=${SOURCES:-.}
REPOSITORY=${REPOSITORY:-$root}
place=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-programs-XXXXXX")
chmod 755 "$place"
mnt=$place/mnt
SOURCES=$(cd "$SOURCES" && pwd)
export LC_ALL=C GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=N GIT_AUTHOR_EMAIL=n@example.org GIT_COMMITTER_NAME=N GIT_COMMITTER_EMAIL=n@example.org

attach() { "$program" mount "$place/store" "$mnt" --key-file "$place/key" --allow-other -o suid,dev --log-file "$place/log"; }
detach() { cd / && "$program" umount "$mnt"; }
clean_up() {
    cd /
    awk -v "below=$place/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        while read -r mount; do umount -i "$mount" 2>/dev/null || umount -i -l "$mount"; done
    rm -rf --one-file-system "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

git_works() {
    cd "$mnt" && git clone -q --no-local "$REPOSITORY" clone && cd clone && git fsck --full --strict --no-dangling &&
        git gc -q --aggressive --prune=now && git checkout -q -b side HEAD~20 && echo side >side && git add side &&
        git commit -qm side && git rebase -q "@{-1}" && detach && attach && cd "$mnt/clone" &&
        git fsck --full --strict --no-dangling && [ -z "$(git status --porcelain)" ] &&
        [ "$(git rev-parse side~1)" = "$(git -C "$REPOSITORY" rev-parse HEAD)" ]
}

as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$mnt" TMPDIR=/var/tmp PATH="$(pg_config --bindir):$PATH" "$@"; }

postgres_works() {
    local data=$mnt/data run=$place/run i
    mkdir "$data" "$run" && chown 65534:65534 "$data" "$run" && chmod 700 "$data" && cd "$run" || return 1
    start() { as_nobody pg_ctl -s -w -D "$data" -l "$run/log" -o "-c listen_addresses='' -k $run" start; }
    sql() { as_nobody psql -h "$run" -U u -qAt -c "$1" postgres; }
    local balance='SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)
        AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(tbalance) FROM pgbench_tellers)'
    as_nobody initdb -k -D "$data" -U u -A trust >/dev/null && start &&
        as_nobody pgbench -h "$run" -q -i -s 10 -U u postgres && sql 'CREATE EXTENSION amcheck' || return 1
    for i in 1 2 3; do
        as_nobody pgbench -h "$run" -n -c 8 -j 2 -T 30 -U u postgres &
        sleep 10
        kill -9 "$(head -n 1 "$data/postmaster.pid")"
        wait
        # Until its children have noticed, they keep the shared memory.
        for _ in $(seq 20); do start && break; sleep 1; done
        [ "$(sql "$balance")" = t ] && as_nobody pg_amcheck -h "$run" -U u --all --heapallindexed || return 1
    done
    tail -n 5 "$run/log"
    as_nobody pg_ctl -s -m fast -D "$data" stop && detach && attach && as_nobody pg_checksums --check -D "$data"
}

podman_works() { # DRIVER
    local base=$mnt/podman-$1 image=$place/image
    pod() { podman --root "$base" --runroot "$runroot" --storage-driver "$driver" --cgroup-manager cgroupfs "$@"; }
    local driver=$1
    build() { # NAME LINES...: each line runs in a container; chroot is the isolation that works in containers, too
        printf '%s\n' "${@:2}" >"$place/Containerfile"
        mkdir -p "$place/context" && pod build --isolation chroot -q -t "$1" -f "$place/Containerfile" "$place/context"
    }
    local runroot
    runroot=$(mktemp -d /run/warpcrypt-podman-XXXXXX) # Of at most 50 characters.
    if ! [ -d "$image" ]; then # A little system of programs that are here.
        mkdir -p "$image"/{bin,tmp,etc}
        local file
        for file in sh cat ls sha256sum seq rm mkdir mv; do cp -L "$(command -v "$file")" "$image/bin/"; done
        ldd "$image"/bin/* | grep -oE '/[^ ]+' | grep '\.so' | sort -u | while read -r file; do
            mkdir -p "$image$(dirname "$file")" && cp -L "$file" "$image$file"
        done
        seq 100000 >"$image/etc/numbers"
    fi
    mkdir "$base" && tar -C "$image" -c . | pod import - base >/dev/null &&
        build one 'FROM base' 'RUN seq 50000 > /etc/more && rm /etc/numbers && mkdir /new && mv /bin/ls /new/ls' \
            'RUN cat /etc/more | sha256sum > /sum' && detach && attach &&
        build two 'FROM one' 'RUN test ! -e /etc/numbers && test ! -e /bin/ls && /new/ls /new' \
            'RUN test "$(sha256sum < /etc/more)" = "$(cat /sum)"' &&
        pod rmi -af >/dev/null && [ -z "$(pod images -q)" ]
    local status=$?
    umount "$base/$driver" 2>/dev/null
    rm -rf "$runroot"
    return $status
}

unpack() { cd "$mnt" && mkdir "$1" && tar -C "$1" --strip-components=1 -xf "$SOURCES/$1"_*.orig.tar.* && chown -R 65534:65534 "$1" && cd "$1"; }

zlib_works() { unpack zlib && as_nobody ./configure >/dev/null && as_nobody make -s -j4 && as_nobody make -s test; }

sqlite_works() {
    mkdir "$place/one" && ln -s "$SOURCES"/sqlite3_*.orig.tar.xz "$place/one/" && SOURCES=$place/one unpack sqlite3 &&
        as_nobody ./configure --with-tcl=/usr/lib/tcl8.6 >/dev/null && as_nobody make -s -j4 testfixture >/dev/null &&
        as_nobody ./testfixture test/veryquick.test >"$place/sqlite.log" 2>&1
    tail -n 5 "$place/sqlite.log"
    grep -q '^0 errors out of' "$place/sqlite.log"
}

# A client in a network namespace of its own; the mount below ends and comes back while programs use it.
nfs_works() {
    local space=warpcrypt-nfs far=$place/far server=10.77.0.1 client=10.77.0.2 status
    serve() { exportfs -o rw,no_root_squash,no_subtree_check,fsid=1 "$client:$mnt" && rpc.nfsd -N 3 8; }
    leave() { rpc.nfsd 0 && exportfs -ua && exportfs -f; }
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd || return 1
    echo 15 >/proc/fs/nfsd/nfsv4gracetime && echo 15 >/proc/fs/nfsd/nfsv4leasetime
    mkdir "$far" && ip netns add $space && ip link add wnfs0 type veth peer name wnfs1 netns $space &&
        ip addr add $server/24 dev wnfs0 && ip link set wnfs0 up &&
        nsenter --net=/run/netns/$space sh -c "ip addr add $client/24 dev wnfs1 && ip link set wnfs1 up && ip link set lo up" &&
        rpc.mountd -N 3 && serve &&
        nsenter --net=/run/netns/$space mount -t nfs4 -o "vers=4.2" "$server:$mnt" "$far" && nfs_programs "$far"
    status=$?
    cd / && umount "$far" || umount -f -l "$far"
    leave
    pkill -x rpc.mountd
    ip netns del $space
    return $status
}

nfs_programs() { # DIRECTORY
    local far=$1 writer reader
    cd "$far" && git clone -q --no-local "$REPOSITORY" clone && git -C clone fsck --full --strict --no-dangling &&
        cp -a /usr/include include && diff -r --no-dereference /usr/include include &&
        tar -C /usr/include -c . | tar -C "$(mktemp -d -p "$far" tar-XXX)" -x || return 1
    # Held open while the mount below ends and another one comes.
    { for i in $(seq 600); do echo "$i"; sleep 0.1; done >"$far/held"; } &
    writer=$!
    fio --name=verify --directory="$far" --rw=randrw --bsrange=1k-64k --size=64m --numjobs=2 --verify=crc32c --do_verify=1 \
        --time_based --runtime=40 --fsync=64 --output="$place/fio" &
    reader=$!
    sleep 10
    (cd / && leave && detach && attach && serve) || return 1
    wait "$writer" && wait "$reader" || return 1
    grep -E 'err=|READ:|WRITE:' "$place/fio"
    seq 600 | cmp - "$far/held" && diff -r /usr/include include && git -C clone fsck --full --strict --no-dangling &&
        git -C clone gc -q --aggressive --prune=now && [ -z "$(git -C clone status --porcelain)" ]
}

# check NAME COMMAND...
check() {
    local name=$1 begin=$SECONDS
    shift
    echo "== $name" >&2
    if ("$@") </dev/null >&2; then
        echo "| $name | yes | $((SECONDS - begin)) |"
    else
        echo "| $name | **no** | $((SECONDS - begin)) |"
        failed=1
    fi
}

failed=
head -c 64 /dev/urandom >"$place/key"
mkdir "$mnt"
"$program" init "$place/store" --key-file "$place/key" >/dev/null && attach && chmod 755 "$mnt" || exit 1
wanted=("$@")
[ $# -gt 0 ] || wanted=(git zlib sqlite podman-vfs podman-overlay postgres)
for one in "${wanted[@]}"; do
    case $one in
        git) check "git: clone, gc, rebase, fsck" git_works ;;
        zlib) check "zlib: make -j4, make test" zlib_works ;;
        sqlite) check "SQLite: make -j4, veryquick.test" sqlite_works ;;
        podman-vfs) check "podman, driver vfs: import, two builds, removal" podman_works vfs ;;
        podman-overlay) check "podman, driver overlay: the same" podman_works overlay ;;
        postgres) check "PostgreSQL: pgbench, three times kill -9 and recovery, pg_amcheck, pg_checksums" postgres_works ;;
        nfs) check "an NFS export: git, cp -a, tar, fio; the mount below ends and comes back meanwhile" nfs_works ;;
        *) echo "programs.sh: no such program: $one" >&2; exit 2 ;;
    esac
done
detach
grep -E 'panicked|does not authenticate' "$place/log" && failed=1
[ -z "$failed" ]
