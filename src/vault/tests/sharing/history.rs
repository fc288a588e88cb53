//! What a file may read as.

/// A process that has a file's lease.
pub(super) struct Holder {
    pub(super) client: usize,
    /// What it wrote.
    pub(super) now: Vec<u8>,
    /// What certainly stays if it is killed.
    pub(super) floor: Vec<u8>,
    /// What may be there instead, a part here and a part there.
    pub(super) later: Vec<Vec<u8>>,
}

/// A file: all that it ever was for everybody, and what one of them is making of it.
#[derive(Default)]
pub(super) struct Content {
    pub(super) versions: Vec<Vec<u8>>,
    pub(super) holder: Option<Holder>,
    /// What a killed holder left.
    pub(super) left: Option<(Vec<u8>, Vec<Vec<u8>>)>,
    /// A kill left a stored file of some length without a header: it reads as empty, and until it is written its attributes
    /// tell another size.
    pub(super) may_be_blank: bool,
}

impl Content {
    pub(super) fn new() -> Self {
        Content { versions: vec![Vec::new()], ..Content::default() }
    }

    pub(super) fn last(&self) -> &[u8] {
        self.versions.last().unwrap()
    }

    pub(super) fn is_held_by(&self, client: usize) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.client == client)
    }

    pub(super) fn is_held_by_another(&self, client: usize) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.client != client)
    }

    /// What `client` makes of it.
    pub(super) fn change(&mut self, client: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let last = self.last().to_vec();
        let holder = self.holder.get_or_insert_with(|| Holder {
            client,
            now: last.clone(),
            floor: last,
            later: Vec::new(),
        });
        change(&mut holder.now);
        holder.later.push(holder.now.clone());
    }

    /// What was changed is in the store.
    pub(super) fn stored(&mut self) {
        if let Some(holder) = &mut self.holder {
            holder.floor = holder.now.clone();
            holder.later.clear();
        }
    }

    /// The lease was given back.
    pub(super) fn given_back(&mut self) {
        if let Some(holder) = self.holder.take() {
            self.may_be_blank = false;
            self.versions.push(holder.now);
        }
    }

    pub(super) fn killed(&mut self) {
        if let Some(Holder { floor, later, .. }) = self.holder.take() {
            self.left = Some((floor, later));
        }
    }

    /// Judges what was read at first after a holder was killed; it counts from then on.
    pub(super) fn recovered(&mut self, read: Vec<u8>) {
        let Some((floor, later)) = self.left.take() else { return };
        let all: Vec<&Vec<u8>> = std::iter::once(&floor).chain(&later).collect();
        let lens = || all.iter().map(|version| version.len());
        let (least, most) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
        assert!((least..=most).contains(&read.len()), "{} bytes, not {least} to {most}", read.len());
        for (at, byte) in read.iter().enumerate() {
            // Between two sizes there may be a hole.
            let may_be = |version: &&Vec<u8>| version.get(at).copied().unwrap_or(0) == *byte;
            assert!(all.iter().any(may_be), "byte {at} was never {byte} since what was confirmed");
        }
        self.may_be_blank = read.is_empty();
        self.versions.push(read);
    }

    /// Judges what a handle reads that was opened at the version `since`.
    pub(super) fn may_read(&self, since: usize, read: &[u8]) {
        let versions = &self.versions[since..];
        assert!(versions.iter().any(|version| version.len() == read.len()), "{} bytes", read.len());
        for (at, byte) in read.iter().enumerate() {
            let may_be = |version: &Vec<u8>| version.get(at) == Some(byte);
            assert!(versions.iter().any(may_be), "byte {at} was not {byte} since the file was opened");
        }
    }
}
