#!/usr/bin/env bash
# Puts more than a gigabyte of real files and real programs through a mounted vault, and prints PASS or
# FAIL for each claim. Takes about ten minutes; `cargo test` has shorter versions.
#
# Usage: mount-scripts/acceptance.sh [CIPHER]
#   WARPCRYPT   the program (target/release/warpcrypt)
#   TMPDIR      directory for the vault; needs 6 GB of space
#   MINUTE      seconds that pgbench runs (60)
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=${WARPCRYPT:-$root/target/release/warpcrypt}
cipher=${1:-aes-256-ctr}
minute=${MINUTE:-60}
user=nobody

place=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-acceptance-XXXXXX")
chmod 755 "$place"
store=$place/store mnt=$place/mnt key=$place/key log=$place/log
failed=0 passed=0
export LC_ALL=C GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=N GIT_AUTHOR_EMAIL=n@example.org GIT_COMMITTER_NAME=N GIT_COMMITTER_EMAIL=n@example.org

clean_up() {
    cd /
    if mountpoint -q "$mnt"; then umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt"; fi
    rm -rf "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# check NAME COMMAND...: PASS if the command succeeds.
check() {
    local name=$1 start=$SECONDS
    shift
    if ("$@") >"$place/output" 2>&1; then
        passed=$((passed + 1))
        printf 'PASS  %-58s %4d s\n' "$name" $((SECONDS - start))
    else
        failed=$((failed + 1))
        printf 'FAIL  %-58s %4d s\n' "$name" $((SECONDS - start))
        tail -n 20 "$place/output" | sed 's/^/      /'
    fi
}

limit() { timeout --kill-after=10 900 "$@"; }
attach() { limit "$program" mount "$store" "$mnt" --key-file "$key" --allow-other --log-file "$log"; }
detach() { limit "$program" umount "$mnt"; }
reattach() { cd / && detach && attach; }

serving() { # the process behind the mount
    local process
    for process in /proc/[0-9]*; do
        [[ $(readlink "$process/exe") == "$(readlink -f "$program")"* ]] || continue
        tr '\0' '\n' <"$process/cmdline" | grep -qxF "$mnt" && basename "$process" && return
    done
    return 1
}

# Lists a tree: modes, times, owners, links, sizes, targets. Leaves out sizes and link counts of
# directories, which depend on the store.
listing() {
    (cd "$1" && find . -mindepth 1 \( -type d -printf '%P|%y|%m|%T@|%U:%G\n' \
        -o -printf '%P|%y|%m|%T@|%U:%G|%n|%s|%l\n' \) | sort)
}

same() { # ORIGINAL COPY
    local difference
    diff <(listing "$1") <(listing "$2") | head -n 20 | grep . && return 1
    difference=$(limit rsync -aHAXnci --delete "$1/" "$2/") || return 1
    [ -z "$difference" ] || { echo "$difference" | head -n 20; return 1; }
}

make_source() {
    mkdir "$source" && cp -a "$(rustc --print sysroot)" "$source/toolchain" || return 1
    local odd=$source/odd i
    mkdir "$odd" && cd "$odd" || return 1
    git init -q history && cd history || return 1
    for i in $(seq 150); do
        seq $((i * 40)) >"file$((i % 11))"
        mkdir -p "dir$((i % 7))" && echo "$i" >"dir$((i % 7))/$i"
        git add -A && git commit -qm "change $i" || return 1
    done
    cd "$odd" || return 1
    for i in ümlaut $'u\xcc\x88mlaut' каталог 目录 مجلد 🗝 ' two  blanks ' $'new\nline' $'\xff\xfe' -rf '*'; do
        mkdir -p "./$i" && echo "$i" >"./$i/$i" || return 1
    done
    for i in $(seq 200); do
        local long
        long=$(printf "%0$((180 + i % 76))d" "$i")
        echo "$i" >"$long" && ln "$long" "hard link $i" && ln -s "$long" "symbolic link $i" || return 1
    done
    truncate -s 300M sparse && printf x | dd of=sparse bs=1 seek=200000000 conv=notrunc status=none
    mkfifo pipe && chmod 4711 ümlaut/ümlaut && touch -d '1999-12-31 23:59:59.123456789' каталог
    [ "$(id -u)" != 0 ] || chown -R 12345:54321 目录
    [ "$(find "$source" | wc -l)" -gt 20000 ] && [ "$(du -sm "$source" | cut -f1)" -gt 1000 ]
}

git_works() {
    cd "$mnt" || return 1
    limit git clone -q "$mnt/cp/odd/history" clone && limit git clone -q --bare --no-local clone bare.git &&
        cd clone && limit git gc -q --aggressive --prune=now && limit git fsck --full --strict &&
        git -C ../bare.git fsck --full && [ -z "$(git status --porcelain)" ]
}

sqlite_works() {
    cd "$mnt" || return 1
    [ "$(sqlite3 wal.db 'PRAGMA journal_mode=wal; CREATE TABLE t(w, v);')" = wal ] || return 1
    local writer writers=() n
    for writer in 1 2 3 4 5 6; do
        for n in $(seq 300); do
            echo "BEGIN IMMEDIATE; INSERT INTO t VALUES($writer, hex(randomblob(500)));" \
                "UPDATE t SET v = hex(randomblob(100)) WHERE rowid % 13 = $writer; COMMIT;"
        done >"$place/writer-$writer.sql"
        limit sqlite3 -bail -cmd '.timeout 200000' wal.db ".read $place/writer-$writer.sql" &
        writers+=($!)
    done
    for writer in "${writers[@]}"; do wait "$writer" || return 1; done
    reattach && cd "$mnt" || return 1
    [ "$(sqlite3 wal.db 'PRAGMA integrity_check; SELECT count(*) FROM t;')" = $'ok\n1800' ]
}

as_user() { limit setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups env PATH="$(pg_config --bindir):$PATH" "$@"; }

postgres_works() {
    local data=$mnt/data sockets=$place/sockets balance
    mkdir "$data" "$sockets" && chown "$user" "$data" "$sockets" && chmod 700 "$data" || return 1
    cd "$sockets" || return 1
    start() { as_user pg_ctl -s -w -D "$data" -l "$sockets/log" -o "-c listen_addresses='' -k $sockets" start; }
    stop() { as_user pg_ctl -s -w -m fast -D "$data" stop; }
    sql() { as_user psql -h "$sockets" -U u -qAt -c "$1" postgres; }
    balance='SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)
        AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(tbalance) FROM pgbench_tellers)'
    as_user initdb -k -D "$data" -U u -A trust && start || return 1
    as_user pgbench -h "$sockets" -q -i -s 10 -U u postgres &&
        as_user pgbench -h "$sockets" -c 8 -j 2 -T "$minute" -U u postgres &&
        stop && reattach && as_user pg_checksums --check -D "$data" && start &&
        [ "$(sql "$balance")" = t ] && stop && return
    as_user pg_ctl -s -m immediate -D "$data" stop
    return 1
}

fio_works() { # NAME OPTIONS...
    local name=$1
    shift
    local job=(fio --name="$name" --directory="$mnt" --rw=randwrite --size=200m --verify=crc32c --verify_fatal=1
        --randrepeat=1 --verify_state_save=0 --bsrange=4k-256k --blockalign=4k "$@")
    limit "${job[@]}" --do_verify=1 && reattach && limit "${job[@]}" --verify_only=1 && rm "$mnt/$name".*
}

fsx_works() { cd "$root" && REQUIRE_FUSE=1 limit cargo test --release --test mounted fsx; }

cargo_works() {
    mkdir "$mnt/project" && cp -a "$root"/{Cargo.toml,Cargo.lock,crates,kernels,src} "$mnt/project/" || return 1
    [ ! -d "$root/benches" ] || cp -a "$root/benches" "$mnt/project/"
    unset CARGO_TARGET_DIR RUSTFLAGS
    cd "$mnt/project" && limit cargo build --bins &&
        reattach && cd "$mnt/project" && target/debug/warpcrypt --version && limit cargo build --bins
}

survives_a_kill() {
    sync -f "$mnt" && kill -9 "$(serving)" || return 1
    sleep 1
    umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt"
    attach && same "$source" "$mnt/cp"
}

source=$place/source
for needed in rsync git sqlite3 fio rustc cargo; do
    command -v "$needed" >/dev/null || { echo "SKIPPED: needs $needed"; exit 1; }
done
echo "cipher $cipher, in $place"
head -c 64 /dev/urandom >"$key"
mkdir "$mnt"
check "a tree of more than 1 GB and 20,000 files is there" make_source
check "init" limit "$program" init "$store" --cipher "$cipher" --key-file "$key"
check "mount" attach
chmod 755 "$mnt"
check "cp -a puts it in" limit cp -a "$source" "$mnt/cp"
check "rsync -aHAX puts it in" limit rsync -aHAX "$source/" "$mnt/rsync"
check "unmount and mount" reattach
check "the tree of cp -a is the same" same "$source" "$mnt/cp"
check "the tree of rsync is the same" same "$source" "$mnt/rsync"
check "removing a tree" limit rm -r "$mnt/rsync"
check "git clones, collects and checks" git_works
check "six processes share a SQLite database" sqlite_works
if [ "$(id -u)" = 0 ] && command -v pg_config >/dev/null; then
    check "PostgreSQL runs pgbench for $minute s and restarts" postgres_works
else
    echo "SKIPPED: PostgreSQL: needs root and pg_config"
fi
check "fio verifies buffered random writes" fio_works buffered --ioengine=psync --fsync=500
check "fio verifies O_DIRECT random writes" fio_works direct --ioengine=psync --direct=1
check "fio verifies mapped random writes" fio_works mmap --ioengine=mmap
check "fsx: 100,000 operations" fsx_works
check "cargo builds this project" cargo_works
check "the tree outlives a kill -9" survives_a_kill
check "unmount" detach
check "nothing panicked and nothing was damaged" bash -c "! grep -E 'panicked|does not authenticate' '$log'"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
