use super::*;
use crate::{
    caching::CacheMode,
    fixture::{new_vault, share},
    gate::Gate,
    loops::Loops,
    owners::Owners,
    permission_policy::PermissionPolicy,
};
use format::name::DIR_ID_NAME;
use std::{
    fs::File,
    sync::mpsc::{Sender, channel},
};

struct To(Sender<bool>);

impl<T> Reply<T> for To {
    fn answer(self, answer: Answer<T>) {
        self.0.send(answer.is_ok()).unwrap();
    }
}

/// Other requests of the kernel must be served meanwhile.
#[test]
fn a_loop_does_not_wait_for_another_machine() {
    let place = new_vault();
    let one = share(place.path(), Duration::from_secs(2));
    // As another machine locks a directory while it creates a long name there.
    let id = File::open(place.path().join(DIR_ID_NAME)).unwrap();
    let loops = Loops::new(1, Box::new(|| false));
    let passage = (loops.clone(), Gate::new());
    let server = Server::new(
        one,
        false,
        (PermissionPolicy::Nobody, Owners::default()),
        true,
        CacheMode::Auto,
        passage,
        8,
    )
    .unwrap();
    let requests = Requests { server: server.clone(), transport: Transport::Device };
    let caller = Caller { user: 0, group: 0, thread: 0 };
    let [mode, umask] = [0o755, 0];
    let new = || Wanted { mode, umask, uid: 0, gid: 0 };
    let (to, answers) = channel();
    let reply = || To(to.clone());
    let long = ["a", "b", "c", "d", "e"].map(|letter| letter.repeat(200));
    let [dir, file, link, renamed, node] = long.each_ref().map(OsStr::new);
    // The only loop is busy, and another machine holds the lock of the root.
    let _busy = loops.begin();
    let while_locked = |request: &dyn Fn()| {
        id.lock().unwrap();
        request();
        id.unlock().unwrap();
        assert!(answers.recv().unwrap());
    };
    while_locked(&|| requests.mkdir(caller, ROOT, dir, new(), reply()));
    while_locked(&|| requests.create(caller, ROOT, file, new(), OpenFlags(libc::O_RDWR), reply()));
    while_locked(&|| requests.symlink(caller, ROOT, link, OsStr::new("target"), reply()));
    while_locked(&|| requests.mknod(caller, ROOT, node, new(), (libc::S_IFIFO | 0o644, 0), reply()));
    while_locked(&|| {
        requests.rename(caller, (ROOT, dir), (ROOT, renamed), RenameFlags::empty(), reply());
    });
    while_locked(&|| requests.unlink(caller, ROOT, file, reply()));
    while_locked(&|| requests.rmdir(caller, ROOT, renamed, reply()));
    drop(_busy);
    server.finish();
}
