//! The operations of `random_tree`.

use proptest::{prelude::*, sample::select, strategy::Union};
use std::path::Path;

/// Maximum number of open handles in a sequence.
pub const HANDLES: usize = 5;

/// A path: an index of a directory and an index of a name.
#[derive(Debug, Clone, Copy)]
pub struct Place(u8, u8);

/// The initial state of a sequence: directories and files, and the first files opened for reading and
/// writing.
pub fn start() -> Vec<Op> {
    let mut ops: Vec<Op> =
        [Place(0, 3), Place(1, 4), Place(0, 8)].map(|at| Op::MakeDir { at, mode: 0o755 }).into();
    for (handle, (dir, name)) in [(0, 0), (1, 1), (2, 2), (3, 5), (0, 6)].into_iter().enumerate() {
        let (at, handle) = (Place(dir, name), handle as u8);
        let (create, exclusive, truncate, append) = (true, false, false, false);
        ops.push(Op::Open { at, handle, access: 2, create, exclusive, truncate, append, mode: 0o644 });
        ops.push(Op::WriteAt { handle, offset: 0, len: 1 << (4 * handle), fill: 1 });
    }
    ops
}

/// One operation. Handles are indices; a closed one gives EBADF on both sides.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Op {
    Open {
        at: Place,
        handle: u8,
        access: u8,
        create: bool,
        exclusive: bool,
        truncate: bool,
        append: bool,
        mode: u16,
    },
    Close(u8),
    Write {
        handle: u8,
        len: u32,
        fill: u8,
    },
    WriteAt {
        handle: u8,
        offset: u32,
        len: u32,
        fill: u8,
    },
    Read {
        handle: u8,
        len: u32,
    },
    ReadAt {
        handle: u8,
        offset: u32,
        len: u32,
    },
    SeekTo {
        handle: u8,
        offset: i32,
        whence: u8,
    },
    TruncateHandle {
        handle: u8,
        size: u32,
    },
    Truncate {
        at: Place,
        size: u32,
    },
    Allocate {
        handle: u8,
        mode: u8,
        offset: u32,
        len: u32,
    },
    Copy {
        from: u8,
        to: u8,
        source: u32,
        target: u32,
        len: u32,
    },
    Sync {
        handle: u8,
        data: bool,
    },
    SyncDir(Place),
    StatHandle(u8),
    Stat(Place),
    Rename {
        from: Place,
        to: Place,
        flags: u8,
    },
    Link {
        from: Place,
        to: Place,
    },
    Unlink(Place),
    Symlink {
        at: Place,
        target: Place,
    },
    ReadLink(Place),
    MakeDir {
        at: Place,
        mode: u16,
    },
    RemoveDir(Place),
    MakePipe(Place),
    Mode {
        at: Place,
        mode: u16,
    },
    ModeOfHandle {
        handle: u8,
        mode: u16,
    },
    Times {
        at: Place,
        seconds: i64,
        nanoseconds: u32,
        follow: bool,
    },
    SetAttribute {
        at: Place,
        name: u8,
        len: u32,
        flags: u8,
    },
    GetAttribute {
        at: Place,
        name: u8,
        room: u32,
    },
    ListAttributes(Place),
    RemoveAttribute {
        at: Place,
        name: u8,
    },
    List(Place),
    Access {
        at: Place,
        how: u8,
    },
    Umask(u16),
    Group {
        at: Place,
        which: u8,
    },
    SetAcl {
        at: Place,
        default: bool,
        which: u8,
    },
    GetAcl {
        at: Place,
        default: bool,
    },
    Remount,
}

const DIRS: [&str; 4] = ["", "d", "d/e", "каталог"];
/// The attributes that are set and read.
pub const ATTRIBUTES: [&str; 2] = ["user.a", "user.длинное имя атрибута"];

impl Place {
    /// The path, relative to the side's root.
    pub fn name(self) -> String {
        let long = "L".repeat(255);
        let too_long = "M".repeat(256);
        let names = ["a", "b", "c", "d", "e", "имя 名前", &long, &too_long, "каталог"];
        Path::new(DIRS[self.0 as usize % DIRS.len()])
            .join(names[self.1 as usize % names.len()])
            .display()
            .to_string()
    }
}

fn place() -> impl Strategy<Value = Place> {
    // File names are frequent; names of the directories and the overlong name are rare.
    let name =
        prop_oneof![24 => 0..3u8, 6 => select(vec![5u8, 6]), 4 => select(vec![3u8, 4, 8]), 1 => Just(7u8)];
    (0..4u8, name).prop_map(|(dir, name)| Place(dir, name))
}

/// One of a few places, so that operations affect each other.
fn few_places() -> impl Strategy<Value = Place> {
    prop_oneof![6 => (0..2u8, 0..3u8).prop_map(|(dir, name)| Place(dir, name)), 1 => place()]
}

/// Usually one of the directories that contain everything else.
fn dir_place() -> impl Strategy<Value = Place> {
    prop_oneof![3 => select(vec![Place(0, 3), Place(1, 4), Place(0, 8)]), 1 => place()]
}

/// Sizes and offsets: small ones, and the edges of chunks and groups.
fn size() -> impl Strategy<Value = u32> {
    let edge = (select(vec![1u32, 2, 3, 47, 48, 49, 112, 113]), 0..9u32).prop_map(|(c, d)| c * 4096 + d - 4);
    prop_oneof![3 => 0..20_000u32, 2 => edge, 1 => 0..600_000u32]
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![5 => 0..9_000u32, 1 => 0..150_000u32]
}

fn mode() -> impl Strategy<Value = u16> {
    prop_oneof![3 => Just(0o644u16), 3 => Just(0o755), 2 => 0..0o10000u16]
}

fn times(at: Place, seconds: i64, nanoseconds: u32, follow: bool) -> Op {
    Op::Times { at, seconds, nanoseconds, follow }
}

/// Permission bits of all kinds, including those that deny access to the owner.
fn any_mode() -> impl Strategy<Value = u16> {
    prop_oneof![3 => Just(0o755u16), 3 => 0..0o1000u16, 2 => 0..0o10000u16]
}

/// Operations of an ordinary user: those of `any_op`, and everything that involves modes, groups and
/// ACLs.
pub fn any_op_of_a_user() -> impl Strategy<Value = Op> {
    let h = || 0..HANDLES as u8;
    let at = || prop_oneof![3 => few_places(), 2 => dir_place(), 1 => place()];
    let b = any::<bool>;
    let ops: Vec<(u32, BoxedStrategy<Op>)> = vec![
        (100, any_op().boxed()),
        (10, (at(), any_mode()).prop_map(|(at, mode)| Op::Mode { at, mode }).boxed()),
        (8, (h(), any_mode()).prop_map(|(handle, mode)| Op::ModeOfHandle { handle, mode }).boxed()),
        // Otherwise hardly anything would remain accessible.
        (14, dir_place().prop_map(|at| Op::Mode { at, mode: 0o755 }).boxed()),
        (6, few_places().prop_map(|at| Op::Mode { at, mode: 0o6755 }).boxed()),
        (4, (dir_place(), any_mode()).prop_map(|(at, mode)| Op::MakeDir { at, mode }).boxed()),
        (2, (0..0o1000u16).prop_map(Op::Umask).boxed()),
        (5, (at(), 0..4u8).prop_map(|(at, which)| Op::Group { at, which }).boxed()),
        (6, (at(), b(), 0..5u8).prop_map(|(at, default, which)| Op::SetAcl { at, default, which }).boxed()),
        (4, (at(), b()).prop_map(|(at, default)| Op::GetAcl { at, default }).boxed()),
    ];
    Union::new_weighted(ops)
}

/// Any operation; useful ones are more likely.
pub fn any_op() -> impl Strategy<Value = Op> {
    let h = || 0..HANDLES as u8;
    let b = any::<bool>;
    let open = (place(), h(), 0..3u8, any::<[bool; 4]>(), mode(), 0..6u8).prop_map(
        |(at, handle, access, f, mode, rare)| Op::Open {
            at,
            handle,
            access,
            create: f[0] || f[1],
            exclusive: rare == 5,
            truncate: f[2] && rare < 3,
            append: f[3] && rare > 3,
            mode,
        },
    );
    let ops: Vec<(u32, BoxedStrategy<Op>)> = vec![
        (16, open.boxed()),
        (2, h().prop_map(Op::Close).boxed()),
        (
            8,
            (h(), len(), any::<u8>()).prop_map(|(handle, len, fill)| Op::Write { handle, len, fill }).boxed(),
        ),
        (
            12,
            (h(), size(), len(), any::<u8>())
                .prop_map(|(handle, offset, len, fill)| Op::WriteAt { handle, offset, len, fill })
                .boxed(),
        ),
        (4, (h(), len()).prop_map(|(handle, len)| Op::Read { handle, len }).boxed()),
        (
            10,
            (h(), size(), len()).prop_map(|(handle, offset, len)| Op::ReadAt { handle, offset, len }).boxed(),
        ),
        (
            3,
            (h(), -5_000..40_000i32, 0..3u8)
                .prop_map(|(handle, offset, whence)| Op::SeekTo { handle, offset, whence })
                .boxed(),
        ),
        (5, (h(), size()).prop_map(|(handle, size)| Op::TruncateHandle { handle, size }).boxed()),
        (4, (place(), size()).prop_map(|(at, size)| Op::Truncate { at, size }).boxed()),
        (
            5,
            (h(), 0..7u8, size(), len())
                .prop_map(|(handle, mode, offset, len)| Op::Allocate { handle, mode, offset, len })
                .boxed(),
        ),
        (
            4,
            (h(), h(), size(), size(), len())
                .prop_map(|(from, to, source, target, len)| Op::Copy { from, to, source, target, len })
                .boxed(),
        ),
        (3, (h(), b()).prop_map(|(handle, data)| Op::Sync { handle, data }).boxed()),
        (1, dir_place().prop_map(Op::SyncDir).boxed()),
        (4, h().prop_map(Op::StatHandle).boxed()),
        (6, place().prop_map(Op::Stat).boxed()),
        (10, (place(), place(), 0..6u8).prop_map(|(from, to, flags)| Op::Rename { from, to, flags }).boxed()),
        (5, (place(), place()).prop_map(|(from, to)| Op::Link { from, to }).boxed()),
        (5, place().prop_map(Op::Unlink).boxed()),
        (4, (few_places(), place()).prop_map(|(at, target)| Op::Symlink { at, target }).boxed()),
        (3, few_places().prop_map(Op::ReadLink).boxed()),
        (9, (dir_place(), mode()).prop_map(|(at, mode)| Op::MakeDir { at, mode }).boxed()),
        (2, place().prop_map(Op::RemoveDir).boxed()),
        (1, place().prop_map(Op::MakePipe).boxed()),
        (4, (place(), mode()).prop_map(|(at, mode)| Op::Mode { at, mode }).boxed()),
        (2, (h(), mode()).prop_map(|(handle, mode)| Op::ModeOfHandle { handle, mode }).boxed()),
        (
            5,
            (place(), 0..1_500_000_000i64, 0..1_000_000_000u32, b())
                .prop_map(|(a, s, n, f)| times(a, s, n, f))
                .boxed(),
        ),
        (
            5,
            (few_places(), 0..2u8, value_len(), select(vec![0u8, 0, 0, 1, 2]))
                .prop_map(|(at, name, len, flags)| Op::SetAttribute { at, name, len, flags })
                .boxed(),
        ),
        (
            4,
            (few_places(), 0..2u8, select(vec![0, 10, 65_536, 65_536]))
                .prop_map(|(at, name, room)| Op::GetAttribute { at, name, room })
                .boxed(),
        ),
        (2, few_places().prop_map(Op::ListAttributes).boxed()),
        (3, (few_places(), 0..2u8).prop_map(|(at, name)| Op::RemoveAttribute { at, name }).boxed()),
        (4, dir_place().prop_map(Op::List).boxed()),
        (2, (place(), 0..8u8).prop_map(|(at, how)| Op::Access { at, how }).boxed()),
        (1, Just(Op::Remount).boxed()),
    ];
    Union::new_weighted(ops)
}

/// Length of an attribute's value, up to Linux's maximum. Some do not fit into every store.
fn value_len() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0..256u32, 1 => 3_000..5_000u32, 1 => 65_400..=65_536u32]
}
