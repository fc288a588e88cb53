# To be sourced by scripts that test a vault on GlusterFS: a volume of three bricks on this machine,
# replica 3, configured as docs/stores.md requires for --shared. The bricks are in `place`, and `volume`
# is the volume's name. No other volume may be in use.

# A client must not cache anything that others have changed, and locks must not outlive their holder.
gluster_make() {
    local option
    pgrep -x glusterd >/dev/null || { glusterd && sleep 3; }
    gluster --mode=script volume create "$volume" replica 3 "$(hostname):$place"/brick-{1,2,3} force || return 1
    for option in quick-read io-cache stat-prefetch open-behind readdir-ahead read-ahead write-behind; do
        gluster --mode=script volume set "$volume" performance.$option off
    done
    gluster --mode=script volume set "$volume" client.strict-locks on
    gluster --mode=script volume start "$volume" && sleep 2
}
gluster_attach() { # DIRECTORY
    mount -t glusterfs -o "${OPTIONS:-attribute-timeout=0,entry-timeout=0,direct-io-mode=enable}" "$(hostname):/$volume" "$1"
}
gluster_remove() { gluster --mode=script volume stop "$volume" force && gluster --mode=script volume delete "$volume"; }
