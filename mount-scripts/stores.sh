#!/usr/bin/env bash
# A vault on stores that are not local disks: which steps work there, also after the mount is killed.
# Each store is created on this machine. Prints the rows of a table: the step, "yes" or "no", and
# seconds.
#
# As root: mount-scripts/stores.sh STORE
#   local     a directory, for comparison
#   sshfs     packages sshfs and openssh-sftp-server, without a network in between
#   gluster   package glusterfs-server: three bricks, replica 3; one is killed before the mount is. No
#   other
#             volume may be in use
#   rclone    package rclone: WebDAV, with --vfs-cache-mode full
#   s3fs      package s3fs; a bucket at S3_URL (passwd_file in S3_KEYS, its name in S3_BUCKET)
#   WARPCRYPT is the program (target/release/warpcrypt). Needs fio, git, sqlite3, attr.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=$(readlink -f "${WARPCRYPT:-$root/target/release/warpcrypt}")
place=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-stores-XXXXXX")
store=$place/store
mnt=$place/mnt
served=

attach() { "$program" mount "$store/vault" "$mnt" --key-file "$place/key" --log-file "$place/log"; }
clean_up() {
    cd /
    mountpoint -q "$mnt" && umount -i -l "$mnt"
    mountpoint -q "$store" && umount -l "$store"
    [ -z "$served" ] || kill "$served"
    [ ! -d "$place/brick-1" ] || { gluster --mode=script volume stop warpcrypt force && gluster --mode=script volume delete warpcrypt; } >&2
    rm -rf --one-file-system "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

local_store() { :; }

sshfs_store() {
    printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' >"$place/sftp" && chmod +x "$place/sftp"
    mkdir "$place/far" && sshfs -o ssh_command="$place/sftp" "far:$place/far" "$store"
}

gluster_store() {
    local host n
    host=$(hostname)
    pgrep -x glusterd >/dev/null || { glusterd && sleep 3; }
    gluster --mode=script volume create warpcrypt replica 3 "$host":"$place"/brick-{1,2,3} force >&2 &&
        gluster --mode=script volume start warpcrypt >&2 && sleep 2 && mount -t glusterfs "$host:/warpcrypt" "$store"
}

rclone_store() {
    local far=127.0.0.1:5056
    mkdir "$place/far"
    rclone serve webdav "$place/far" --addr $far >"$place/rclone" 2>&1 &
    served=$!
    sleep 2
    rclone mount :webdav: "$store" --daemon --webdav-url http://$far --vfs-cache-mode full --allow-other
}

s3fs_store() { s3fs "$S3_BUCKET" "$store" -o "passwd_file=$S3_KEYS,url=$S3_URL,use_path_request_style"; }

row() { # NAME COMMAND...
    local name=$1 begin=$EPOCHREALTIME result=yes
    shift
    timeout 150 bash -c '"$@"' - "$@" >"$place/said" 2>&1 || { result="no: $(tail -n 1 "$place/said")"; failed=1; }
    printf '| %s | %s | %.1f |\n' "$name" "$result" "$(bc <<<"$EPOCHREALTIME - $begin")"
}

sync_numbers() { # Writes one of seven pages fifty times, confirming each write.
    python3 - "$mnt/synced" <<'END'
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for n in range(50):
    os.pwrite(file, b"%04096d" % n, 4096 * (n % 7))
    os.fsync(file)
END
}

find_numbers() {
    python3 - "$mnt/synced" <<'END'
import sys
pages = open(sys.argv[1], "rb").read()
sys.exit([int(pages[4096 * n : 4096 * n + 4096]) for n in range(7)] != [49, 43, 44, 45, 46, 47, 48])
END
}

removed_but_open() { (exec 3<>"$mnt/open" && seq 20000 >&3 && rm "$mnt/open" && seq 20000 | cmp - /dev/fd/3); }
renames() { (cd "$mnt" && echo a >a && echo b >b && mv a b && [ "$(cat b)" = a ] && mv tree moved && mv moved tree); }
git_works() { git clone -q --no-local --depth 1 "file://$root" "$mnt/clone" && git -C "$mnt/clone" fsck --strict; }
fio_works() {
    fio --name=verify --directory="$mnt" --rw=randrw --bsrange=1k-64k --size=16m --verify=crc32c --do_verify=1 --fsync=32 \
        --time_based --runtime=8
}
sqlite_works() { sqlite3 "$mnt/db" 'CREATE TABLE t(a); INSERT INTO t VALUES(1); INSERT INTO t VALUES(2); PRAGMA integrity_check;'; }
kill_mount() {
    local server
    server=$(pgrep -f "^[^ ]*warpcrypt.* $mnt" | head -n 1) && kill -9 "$server" && sleep 1 && umount -i -l "$mnt" && attach
}

export root program place store mnt
export -f attach renames removed_but_open git_works fio_works sqlite_works sync_numbers kill_mount find_numbers

try() { # STORE
    mkdir -p "$store" "$mnt" && "$1_store" || { echo "stores.sh: no store $1" >&2; exit 1; }
    # s3fs reports nothing when it fails.
    sleep 1
    [ "$1" = local ] || mountpoint -q "$store" || { echo "stores.sh: $1 did not mount" >&2; exit 1; }
    head -c 64 /dev/urandom >"$place/key"
    row init "$program" init "$store/vault" --key-file "$place/key"
    row mount attach
    mountpoint -q "$mnt" || return
    row "cp -a" cp -a /usr/include/linux "$mnt/tree"
    row "diff -r" diff -r /usr/include/linux "$mnt/tree"
    row "a hard link" ln "$mnt/tree/fuse.h" "$mnt/hard"
    row "a pipe" mkfifo "$mnt/pipe"
    row "an attribute" setfattr -n user.a -v b "$mnt/tree/fuse.h"
    row renames renames
    row "a file that was removed while open" removed_but_open
    row "git clone, fsck" git_works
    row "fio with crc32c and fsync" fio_works
    row SQLite sqlite_works
    row "50 times write and fsync" sync_numbers
    [ "$1" != gluster ] || { pkill -9 -f "glusterfsd.*${place##*/}-brick-2" && echo "a brick was killed" >&2; }
    row "mounted again after kill -9" kill_mount
    row "what was synced is there" find_numbers
    row "diff -r again" diff -r /usr/include/linux "$mnt/tree"
    row "rm -r" rm -r "$mnt/tree"
    row umount "$program" umount "$mnt"
    row "check --full" "$program" check --full "$store/vault" --key-file "$place/key"
}

[ $# -eq 1 ] || { echo "usage: stores.sh local|sshfs|gluster|rclone|s3fs" >&2; exit 2; }
case $1 in
    local | sshfs | gluster | rclone | s3fs) ;;
    *) echo "stores.sh: no such store: $1" >&2; exit 2 ;;
esac
failed=
try "$1"
[ -z "$failed" ]
