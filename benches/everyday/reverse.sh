#!/usr/bin/env bash
# Copies an encrypted view of plain files with rsync, changes a byte, copies it again, and compares what the copy shows. Prints a row of
# a table for each tree and program; standard error has what the programs said.
# Usage: reverse.sh [many] [sparse] [dense]
#   PROGRAMS  the programs in turn ("warpcrypt gocryptfs"), from the path; a path stands for a build of warpcrypt
#   TMPDIR    where the trees and the copies lie: 25 GB of room, another 21 for gocryptfs and `sparse`
set -euo pipefail
export LC_ALL=C

place=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-reverse-XXXXXX")
plain=$place/plain view=$place/view copy=$place/copy mount=$place/mount
server=
end() {
    mountpoint -q "$view" && umount -l "$view"
    mountpoint -q "$mount" && umount -l "$mount"
    [ -z "$server" ] || wait "$server" || true
    rm -rf --one-file-system "$place"
}
trap end EXIT
trap 'exit 130' INT TERM
mkdir "$plain" "$view" "$mount"
head -c 32 /dev/urandom | base64 >"$place/password"

# The trees, each with the file of which a byte is changed.
many() { # 100,000 files of 0 to 8 KiB
    python3 - "$plain" <<'END'
import os, random, sys
random.seed(1)
for d in range(100):
    place = f"{sys.argv[1]}/directory {d}"
    os.mkdir(place)
    for f in range(1000):
        with open(f"{place}/file number {f}.txt", "wb") as file:
            file.write(random.randbytes(random.randrange(8193)))
END
    find "$plain/directory 7" -type f -size +3k | sort | sed -n 1p
}
sparse() { # 20 GB, of which 16 pieces of 16 MiB are data
    local piece
    truncate -s 20G "$plain/image"
    for piece in $(seq 0 15); do
        dd if=/dev/urandom of="$plain/image" bs=1M count=16 seek=$((piece * 1280)) conv=notrunc status=none
    done
    echo "$plain/image"
}
dense() { # 4 GB
    head -c 4G /dev/urandom >"$plain/film"
    echo "$plain/film"
}

prepare() {
    case $1 in
        gocryptfs) gocryptfs -q -init -reverse -scryptn 10 -passfile "$place/password" "$plain" ;;
        *) "$1" init --reverse "$plain" --password-file "$place/password" --kdf-memory 8 ;;
    esac >&2
}
serve() { # PROGRAM FROM TO [OPTION]
    case $1 in
        gocryptfs) gocryptfs -q -fg ${4:+-reverse} -passfile "$place/password" "$2" "$3" >&2 & ;;
        *) "$1" mount -f ${4:+--reverse} --password-file "$place/password" "$2" "$3" >&2 & ;;
    esac
    server=$!
    until mountpoint -q "$3"; do sleep 0.1; done
}
ended() { umount "$1" && wait "$server" && server=; }
check() {
    case $1 in
        gocryptfs) gocryptfs -fsck -q -passfile "$place/password" "$copy" ;;
        *) "$1" check --full --password-file "$place/password" "$copy" ;;
    esac >&2
}
seconds() { # COMMAND...
    local start
    start=$(date +%s%N)
    "$@" >"$place/said"
    echo "$(date +%s%N) $start" | awk '{ printf "%.1f", ($1 - $2) / 1e9 }'
}
change() { # another byte than was there
    python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(2000); b = f.read(1)[0]; f.seek(2000); f.write(bytes([b ^ 1]))' "$1"
}
peak() { awk '/^VmHWM/ { printf "%.0f", $2 / 1024 }' "/proc/$server/status"; }
literal() { awk '/^Literal data:/ { gsub(",", "", $3); printf "%.0f", $3 / 1024 }' "$place/said"; }

row() { # TREE PROGRAM
    local changed=$place/changed first memory again sent
    prepare "$2"
    serve "$2" "$plain" "$view" reverse
    first=$(seconds rsync -aHS "$view/" "$copy/")
    memory=$(peak)
    change "$(cat "$changed")"
    sleep 2 # The kernel may hold attributes of the view for a second.
    again=$(seconds rsync -aH --inplace --no-whole-file --stats "$view/" "$copy/")
    sent=$(literal)
    ended "$view"
    check "$2"
    serve "$2" "$copy" "$mount"
    diff -r -x .warpcrypt.reverse.json -x .gocryptfs.reverse.conf "$plain" "$mount" >&2
    ended "$mount"
    rm -rf "$copy" "$plain"/.*.reverse.*
    echo "|$1|$2|$first|$memory|$again|$sent|yes|"
}

echo '|tree|program|first copy, s|peak memory, MB|after a byte changed, s|KiB sent|mounts equal, checks|'
echo '|---|---|---|---|---|---|---|'
[ $# -gt 0 ] || set -- many sparse dense
for tree in "$@"; do
    $tree >"$place/changed"
    sync
    for program in ${PROGRAMS:-warpcrypt gocryptfs}; do row "$tree" "$program"; done
    find "$plain" -mindepth 1 -delete
done
