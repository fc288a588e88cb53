use super::*;
use std::os::fd::AsFd;

#[test]
fn a_process_that_is_being_started_keeps_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    let lock = WriteLock::take(&root, dir.path(), Users::One).unwrap();
    // The descriptors that the child holds between fork and exec.
    let file = lock.held.lock().file.fd().try_clone().unwrap();
    let directory = lock.directory.as_ref().map(|directory| directory.as_fd().try_clone_to_owned().unwrap());
    drop(lock);
    assert!(WriteLock::take(&root, dir.path(), Users::One).is_ok());
    drop((file, directory));
}

fn is_io(done: io::Result<()>) -> bool {
    done.is_err_and(|e| e.raw_os_error() == Some(Errno::IO.raw_os_error()))
}

#[test]
fn a_lock_that_the_store_took_away_is_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    let take = |users| WriteLock::take(&root, dir.path(), users);
    for users in [Users::One, Users::Several] {
        let lock = take(users).unwrap();
        lock.lose();
        lock.check().unwrap();
        assert!(take(Users::One).is_err());
        lock.finish().unwrap();
    }
}

#[test]
fn who_comes_back_after_another_had_the_vault_alone_fails_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    let take = |users| WriteLock::take(&root, dir.path(), users);
    for users in [Users::One, Users::Several] {
        // The other holder is still working, ended cleanly, was killed, or ended and was followed by a
        // shared holder.
        for end in 0..4 {
            let lock = take(users).unwrap();
            lock.lose();
            let other = take(Users::One).unwrap();
            if end == 0 {
                assert!(is_io(lock.check()));
            }
            if end % 2 == 1 {
                other.finish().unwrap();
            }
            drop(other);
            let third = (end == 3).then(|| take(Users::Several).unwrap());
            assert!(is_io(lock.check()) && is_io(lock.check_to_write()) && is_io(lock.finish()));
            third.iter().for_each(|third| third.check().unwrap());
            drop((lock, third));
            take(Users::One).unwrap().finish().unwrap();
        }
    }
}

#[test]
fn a_vault_at_rest_that_another_had_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    let take = || WriteLock::take(&root, dir.path(), Users::One);
    let lock = take().unwrap();
    lock.rest().unwrap();
    lock.resume();
    lock.check().unwrap();
    lock.rest().unwrap();
    lock.lose();
    let other = take().unwrap();
    assert!(!other.was_left(), "a vault at rest");
    other.finish().unwrap();
    drop(other);
    lock.resume();
    assert!(is_io(lock.check()));
    assert_eq!(std::fs::read(dir.path().join(LOCK_FILE)).unwrap(), b"", "it is not the first's any more");
}

#[test]
fn those_who_share_a_vault_have_one_mark() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    for _ in 0..20 {
        let several: Vec<_> = thread::scope(|scope| {
            let take = || WriteLock::take(&root, dir.path(), Users::Several).unwrap();
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        several.iter().for_each(|lock| lock.check().unwrap());
        // One lost its lock while the others ended and another one started.
        let [first, second, third] = <[WriteLock; 3]>::try_from(several).ok().unwrap();
        first.lose();
        drop((second, third));
        let fourth = WriteLock::take(&root, dir.path(), Users::Several).unwrap();
        first.check().unwrap();
        drop((first, fourth));
        WriteLock::take(&root, dir.path(), Users::One).unwrap().finish().unwrap();
    }
}

#[test]
fn a_first_sharing_holder_may_take_long_to_write_the_mark() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    let (file, _) = lock_file(&root, Users::One).unwrap();
    let mark = Mark::put_new(&file, SEVERAL).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| WriteLock::take(&root, dir.path(), Users::Several).unwrap());
        thread::sleep(3 * MOMENT);
        rustix::fs::flock(&*file.fd(), Users::Several.lock()).unwrap();
        assert_eq!(second.join().unwrap().held.lock().mark, mark);
    });
}

#[test]
fn what_an_older_version_left_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    for users in [Users::One, Users::Several] {
        std::fs::write(dir.path().join(LOCK_FILE), b"open\n").unwrap();
        let lock = WriteLock::take(&root, dir.path(), users).unwrap();
        assert!(lock.was_left());
        lock.check().unwrap();
    }
}

#[test]
fn one_and_several_keep_each_other_out() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    let take = |users| WriteLock::take(&root, dir.path(), users);
    let one = take(Users::One).unwrap();
    assert!(matches!(take(Users::Several), Err(OpenError::Locked)));
    one.finish().unwrap();
    drop(one);
    let several = [take(Users::Several).unwrap(), take(Users::Several).unwrap()];
    assert!(matches!(take(Users::One), Err(OpenError::Shared)));
    several[0].finish().unwrap();
    let [first, second] = several;
    drop(first);
    assert!(matches!(take(Users::One), Err(OpenError::Shared)));
    drop(second);
    assert!(take(Users::One).unwrap().was_left(), "nobody says that all of them ended well");
}

/// This happens in a local directory that is exported over NFS: a client's lock does not exclude the
/// server's own. So the mark is compared at every fsync on local stores, too.
#[test]
fn the_mark_of_a_machine_that_the_lock_does_not_keep_out_counts() {
    let dir = tempfile::tempdir().unwrap();
    let root = StoreDir::open_path(dir.path()).unwrap();
    for users in [Users::One, Users::Several] {
        let lock = WriteLock::take(&root, dir.path(), users).unwrap();
        lock.check().unwrap();
        Mark::put_new(&DirFile::new(open(&root).unwrap().0), ONE).unwrap();
        assert!(is_io(lock.check()) && is_io(lock.check_to_write()) && is_io(lock.finish()));
        drop(lock);
        WriteLock::take(&root, dir.path(), Users::One).unwrap().finish().unwrap();
    }
}
