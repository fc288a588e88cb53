# To be sourced by scripts that test a vault on NFS: this machine's server and three clients in network
# namespaces, mounted as docs/stores.md requires for --shared. The exported directory is in `place`, and
# `volume` is the prefix of the namespaces' names. The kernel needs NFS server and client, and nothing
# else may be exported.
served=

# The server identifies a client by its host name, so each client has a different one.
nfs_make() {
    local n
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd || return 1
    rpc.nfsd 0
    echo 15 >/proc/fs/nfsd/nfsv4gracetime && echo 15 >/proc/fs/nfsd/nfsv4leasetime || return 1
    # nfsdcld records the clients that may reclaim their locks after a server restart.
    if ! pgrep -x nfsdcld >/dev/null; then
        mkdir "$place/pipes" "$place/clients" && mount -t rpc_pipefs rpc_pipefs "$place/pipes" || return 1
        nfsdcld -F -p "$place/pipes" -s "$place/clients" >/dev/null 2>&1 &
        served=$!
    fi
    pgrep -x rpc.mountd >/dev/null || rpc.mountd -N 3 || return 1
    for n in 1 2 3; do
        ip netns add $volume-$n && ip link add wshared$n type veth peer name far netns $volume-$n &&
            ip addr add 10.77.$n.1/24 dev wshared$n && ip link set wshared$n up &&
            ip -n $volume-$n addr add 10.77.$n.2/24 dev far && ip -n $volume-$n link set far up || return 1
    done
    mkdir "$place/export" && exportfs -o rw,sync,no_root_squash,no_subtree_check,fsid=0 "10.77.0.0/16:$place/export" && nfs_serve
}
nfs_serve() { rpc.nfsd -N 3 8; }
nfs_attach() { # DIRECTORY [CLIENT, 1]
    local n=${2:-1} options=${OPTIONS:-vers=4.2,lookupcache=none,actimeo=0}
    nsenter --net=/run/netns/$volume-"$n" unshare --uts \
        sh -c "hostname client-$n && mount -t nfs4 -o $options 10.77.$n.1:/ $1"
}
nfs_remove() {
    local n
    rpc.nfsd 0 && exportfs -ua && exportfs -f
    [ -z "$served" ] || { kill "$served" && wait "$served"; umount "$place/pipes"; }
    for n in 1 2 3; do ip netns del $volume-$n; done
}
