//! Tests of the loops on a fake device, with requests that are slow, block, or depend on one another.

use super::*;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::{
    collections::{HashSet, VecDeque},
    sync::{Barrier, mpsc},
    thread::{JoinHandle, ThreadId},
};

/// Number of loops under test.
const COUNT: usize = 8;
/// A test fails if it waits longer than this.
const NEVER: Duration = Duration::from_secs(20);

type Request = Box<dyn FnOnce() + Send>;

/// A fake kernel: it gives each request to a waiting loop, or queues it until a loop waits.
#[derive(Default)]
struct FuseDevice {
    queue: Mutex<(VecDeque<Request>, bool)>,
    arrived: Condvar,
}

impl FuseDevice {
    fn send(&self, request: impl FnOnce() + Send + 'static) {
        self.queue.lock().0.push_back(Box::new(request));
        self.arrived.notify_one();
    }

    /// Waits for a request; `None` once the mount has ended.
    fn receive(&self) -> Option<Request> {
        let mut queue = self.queue.lock();
        loop {
            match queue.0.pop_front() {
                Some(request) => return Some(request),
                None if queue.1 => return None,
                None => self.arrived.wait(&mut queue),
            }
        }
    }

    fn end(&self) {
        self.queue.lock().1 = true;
        self.arrived.notify_all();
    }
}

struct Mount {
    device: Arc<FuseDevice>,
    loops: Arc<Loops>,
    threads: Vec<JoinHandle<()>>,
}

impl Mount {
    fn new() -> Mount {
        let device = Arc::<FuseDevice>::default();
        let queue = device.clone();
        let loops = Loops::new(COUNT, Box::new(move || !queue.queue.lock().0.is_empty()));
        let mut threads: Vec<_> = (0..COUNT)
            .map(|_| {
                let (device, loops) = (device.clone(), loops.clone());
                thread::spawn(move || {
                    while let Some(request) = device.receive() {
                        let _busy = loops.begin();
                        request();
                    }
                })
            })
            .collect();
        let monitored = loops.clone();
        threads.push(thread::spawn(move || monitored.monitor(|| {})));
        Mount { device, loops, threads }
    }

    /// Sends a request. Waits for its answer, and until its loop has decided what to do next.
    fn one(&self) -> ThreadId {
        let (answer, answered) = mpsc::channel();
        self.device.send(move || answer.send(thread::current().id()).unwrap());
        let by = answered.recv_timeout(NEVER).expect("an answer");
        while self.loops.state.lock().busy > 0 {
            thread::yield_now();
        }
        by
    }

    /// Ends the mount; every thread must return.
    fn end(self) {
        self.device.end();
        let (done, all) = mpsc::channel();
        thread::spawn(move || {
            for thread in self.threads {
                thread.join().unwrap();
            }
            done.send(()).unwrap();
        });
        all.recv_timeout(NEVER).expect("every loop ends with the mount, parked ones too");
    }
}

#[test]
fn a_lone_program_is_served_by_one_loop() {
    let mount = Mount::new();
    // Every loop may answer once before all but one are parked; after that, windows without load must pass.
    let settled = (0..10_000).any(|_| {
        mount.one();
        thread::sleep(Duration::from_micros(100));
        mount.loops.state.lock().parked.len() == COUNT - 1
    });
    assert!(settled);
    let servers: HashSet<_> = (0..100).map(|_| mount.one()).collect();
    assert_eq!(servers.len(), 1);
    mount.end();
}

#[test]
fn all_loops_work_where_requests_wait_for_one_another() {
    let mount = Mount::new();
    for _ in 0..100 {
        for _ in 0..3 {
            mount.one();
        }
        // None of these is answered before all of them are in progress.
        let (together, (answer, answered)) = (Arc::new(Barrier::new(COUNT)), mpsc::channel());
        for _ in 0..COUNT {
            let (together, answer) = (together.clone(), answer.clone());
            mount.device.send(move || {
                together.wait();
                answer.send(()).unwrap();
            });
        }
        for _ in 0..COUNT {
            answered.recv_timeout(NEVER).expect("a loop for every request");
        }
    }
    mount.end();
}

/// A request of the random load: it waits for `first`, takes a while, and unblocks another.
fn request(first: Option<Receiver<()>>, then: Option<Sender<()>>, spins: u64, done: Sender<()>) -> Request {
    Box::new(move || {
        if let Some(first) = first {
            first.recv_timeout(NEVER).expect("a request that another waits for is served");
        }
        for _ in 0..spins {
            std::hint::spin_loop();
        }
        if let Some(then) = then {
            then.send(()).unwrap();
        }
        done.send(()).unwrap();
    })
}

#[test]
fn no_request_waits_forever() {
    let mount = Mount::new();
    let (done, served) = unbounded();
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut sent = 0_usize;
    for _ in 0..2_000 {
        // All but one loop may block at once; the last one serves the requests that unblock the others.
        let (mut held, mut let_go) = (Vec::new(), Vec::new());
        for _ in 0..random(COUNT as u64) {
            let (to, from) = bounded(1);
            held.push(request(Some(from), None, random(2_000), done.clone()));
            let_go.push(request(None, Some(to), random(2_000), done.clone()));
        }
        for request in held.into_iter().chain(let_go) {
            mount.device.send(request);
            sent += 1;
        }
        while sent > 0 && random(4) > 0 {
            served.recv_timeout(NEVER).expect("every request is served");
            sent -= 1;
        }
        while sent > 2 * COUNT {
            served.recv_timeout(NEVER).expect("every request is served");
            sent -= 1;
        }
    }
    for _ in 0..sent {
        served.recv_timeout(NEVER).expect("every request is served");
    }
    mount.end();
}

#[test]
fn a_mount_ends_however_many_are_parked() {
    for requests in 0..3 * COUNT {
        let mount = Mount::new();
        for _ in 0..requests {
            mount.one();
        }
        if requests == 0 {
            mount.loops.end(); // No loop is known yet, so none ends the others.
        }
        mount.end();
    }
}

#[test]
fn no_loop_parks_between_the_parts_of_a_request() {
    let mount = Mount::new();
    let loops = mount.loops.clone();
    for _ in 0..2 * COUNT {
        mount.one(); // One loop waits, so each of the others may park.
    }
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        for _ in 0..100 {
            drop(loops.begin_part());
        }
        done.send(()).unwrap();
    });
    ended.recv_timeout(NEVER).expect("all parts are done");
    mount.end();
}
