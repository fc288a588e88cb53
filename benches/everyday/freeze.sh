#!/bin/sh
# Freezes a mounted vault under load, copies its store meanwhile, and checks every byte of the copy.
# Usage: freeze.sh [ROUNDS]. Needs warpcrypt in the path, and python3 with its sqlite3.
#   COPY           what copies: cp, borg or restic, of which the last two restore the copy from an archive after the thaw (cp)
#   MOUNT_OPTIONS  more options for the mount
set -eu

rounds=${1:-50} by=${COPY:-cp}
place=$(mktemp -d)
store=$place/vault mount=$place/mount key=$place/key copy=$place/copy archive=$place/archive
writers=
end() {
    [ -z "$writers" ] || kill $writers 2>/dev/null || true
    wait
    warpcrypt umount "$mount" 2>/dev/null || true
    rm -rf "$place"
}
trap end EXIT

head -c 64 /dev/urandom >"$key"
mkdir "$mount"
warpcrypt init "$store" --key-file "$key" >/dev/null
warpcrypt mount "$store" "$mount" --key-file "$key" ${MOUNT_OPTIONS:-} >/dev/null

# What runs while the vault is frozen, with the store as its directory, and what makes the copy of it afterwards.
export BORG_REPO="$archive" BORG_BASE_DIR="$place" RESTIC_REPOSITORY="$archive" RESTIC_PASSWORD_FILE="$place/password"
case $by in
    cp) save="cp -a . $copy" restore=: ;;
    borg)
        borg init -e none
        save='borg create ::{now} .' restore='borg extract ::$(borg list --short --last 1)'
        ;;
    restic)
        head -c 32 /dev/urandom | base64 >"$place/password"
        restic -q --no-cache init
        save='restic -q --no-cache backup .' restore='restic -q --no-cache restore latest --target .'
        ;;
    *) echo "freeze.sh: COPY=$by is not known" >&2; exit 2 ;;
esac

# A log of numbered lines, of which every hundredth is synced. What was written is noted outside of the vault.
python3 - "$mount/log" "$place/written" <<'END' &
import os, sys
log, written = (os.open(path, os.O_CREAT | os.O_WRONLY) for path in sys.argv[1:])
number = 0
while True:
    os.write(log, b"%09d\n" % number)
    number += 1
    os.pwrite(written, b"%09d" % number, 0)
    if number % 100 == 0:
        os.fsync(log)
END
writers="$writers $!"

# A table, one transaction after another. The number of the last one that was confirmed is noted.
python3 - "$mount/table.db" "$place/rows" <<'END' &
import os, sqlite3, sys
table = sqlite3.connect(sys.argv[1], isolation_level=None)
rows = os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY)
table.execute("create table t (n integer primary key, text blob)")
number = 0
while True:
    number += 1
    table.execute("insert into t values (?, randomblob(3000))", (number,))
    os.pwrite(rows, b"%09d" % number, 0)
END
writers="$writers $!"

# Files that are replaced and removed.
while :; do
    for name in a b c d e f g; do
        head -c 20000 /dev/urandom >"$mount/new"
        mv "$mount/new" "$mount/$name"
    done
    rm "$mount/c" "$mount/f"
done 2>/dev/null &
writers="$writers $!"

sleep 2
clean=0 round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    # Noted before the freeze: a copy has at least that.
    lines=$(cat "$place/written") rows=$(cat "$place/rows")
    start=$(date +%s%N)
    warpcrypt freeze "$mount" -- sh -c "date +%s%N >'$place/frozen'; cd '$store' && $save"
    mkdir -p "$copy"
    (cd "$copy" && eval "$restore")
    took=$((($(cat "$place/frozen") - start) / 1000000))
    [ ! -s "$copy/warpcrypt.lock" ]
    warpcrypt check --full "$copy" --key-file "$key" >"$place/report"
    warpcrypt export "$copy" "$place/out" --key-file "$key" >/dev/null
    python3 - "$place/out" "$lines" "$rows" <<'END'
import sqlite3, sys
place, lines, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
log = open(place + "/log").read().split()
assert [int(line) for line in log] == list(range(len(log))) and len(log) >= lines, (len(log), lines)
table = sqlite3.connect(place + "/table.db")
assert table.execute("pragma integrity_check").fetchone() == ("ok",)
count = table.execute("select count(*) from t").fetchone()[0]
assert count >= rows, (count, rows)
END
    clean=$((clean + 1))
    echo "round $round: frozen after $took ms, $lines lines, $rows rows"
    rm -rf "$copy" "$place/out"
done
echo "$clean of $rounds copies clean"
