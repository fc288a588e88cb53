# To be sourced by scripts that test a vault on CephFS: a cluster of one monitor, one manager, three OSDs
# and two metadata servers on this machine. All files are in `place`. No other cluster may be in use
# here.

# Without keys, a program may contact the monitor before it knows the cluster's id. It is then refused
# (EPERM) and exits, so retry.
ceph_try() {
    local n
    for n in 1 2 3 4 5; do
        "$@" && return
    done
    return 1
}
ceph_say() { ceph_try ceph -c "$place/ceph.conf" --connect-timeout 60 "$@"; }
ceph_start() { ceph_try "ceph-$1" -c "$place/ceph.conf" -i "$2"; } # KIND NAME

ceph_make() {
    local n id
    mkdir "$place/run" || return 1
    id=$(cat /proc/sys/kernel/random/uuid)
    cat >"$place/ceph.conf" <<CONF
[global]
fsid = $id
mon host = v1:127.0.0.1:6789
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = $place/run
admin socket = $place/run/\$name.\$pid
pid file = $place/run/\$name.pid
log file = $place/run/\$name.log
mon data = $place/mon
mgr data = $place/mgr
mds data = $place/mds-\$id
osd data = $place/osd-\$id
mon data avail crit = 1
mon data avail warn = 1
mon osd down out interval = 3600
osd crush chooseleaf type = 0
osd pool default size = 3
osd pool default min size = 2
osd pool default pg autoscale mode = off
osd memory target = 1Gi
bluestore cache autotune = false
bluestore cache size = 64Mi
bluestore block create = true
bluestore block size = 4Gi
mds cache memory limit = 128Mi
keyring = $place/keyring
[client]
pid file = $place/run/client.\$pid.pid
CONF
    ceph-authtool --create-keyring "$place/keyring" --gen-key -n mon. --cap mon 'allow *' &&
        monmaptool --create --fsid "$id" --addv a v1:127.0.0.1:6789 "$place/monmap" &&
        ceph-mon -c "$place/ceph.conf" -i a --mkfs --monmap "$place/monmap" &&
        ceph_start mon a && mkdir "$place/mgr" && ceph_start mgr a || return 1
    for n in 0 1 2; do
        mkdir "$place/osd-$n" && id=$(cat /proc/sys/kernel/random/uuid) && ceph_say osd new "$id" "$n" &&
            ceph-osd -c "$place/ceph.conf" -i "$n" --mkfs --osd-uuid "$id" && ceph_start osd "$n" || return 1
    done
    ceph_say osd pool create meta 8 && ceph_say osd pool create data 16 && ceph_say fs new cephfs meta data || return 1
    for n in a b; do
        mkdir "$place/mds-$n" && ceph_start mds $n || return 1
    done
    # If a client is silent for this long, its locks are given to waiting clients.
    ceph_say fs set cephfs session_timeout 30
    for ((n = 0; n < 120; n++)); do
        ceph_say fs status cephfs 2>/dev/null | grep -q active && return
        sleep 0.5
    done
    return 1
}
ceph_attach() { # DIRECTORY
    # shellcheck disable=SC2086 # Several options.
    ceph-fuse -c "$place/ceph.conf" ${OPTIONS:---fuse-disable-pagecache=true --client_oc=false} "$1"
}
ceph_remove() {
    local file
    for file in "$place"/run/{client,mds,mgr,osd,mon}.*.pid; do
        [ ! -e "$file" ] || kill -9 "$(cat "$file")"
    done
}
