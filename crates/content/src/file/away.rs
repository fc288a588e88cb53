//! Open files while the vault is locked: without keys, slots or content. Only the stored version is
//! remembered, so that a changed file is noticed when the vault is unlocked.

use super::File;
use crate::{
    error::{Damage, Result},
    recover::{CrashRecovery, Header},
    state::{Fault, State},
};

impl File {
    /// Forgets everything except the stored version; the file then fails until `bring_back`. It must be
    /// clean, or impossible to store.
    pub fn put_away(&self) {
        self.ahead.lock().end();
        let mut st = self.core.state.write();
        let known = std::mem::replace(&mut *st, State::never_committed(&self.core.backing.context));
        *st = known.away(&self.core.backing.context);
    }

    /// Reads the records again.
    ///
    /// # Errors
    /// As `File::open`; `Damaged` if the store has another version. After an error, the file still fails.
    pub fn bring_back(&self) -> Result<()> {
        let mut st = self.core.state.write();
        if st.fault != Some(Fault::Away) {
            return Ok(());
        }
        if self.core.backing.context.sharing.is_some() {
            drop(st);
            return self.lease().refresh(); // Another machine may have changed it meanwhile.
        }
        let (size, root) = (st.stored.base.size, st.stored.base.root);
        let mut times = std::mem::replace(&mut *st, State::never_committed(&self.core.backing.context)).times;
        let loaded = self.core.backing.store.len().map_err(Into::into).and_then(|stored| {
            let header = Header::read(&*self.core.backing.store)?;
            CrashRecovery::of(&self.core.backing).load(&mut st, stored, &header)
        });
        let loaded =
            loaded.and_then(|()| match st.stored.tree.size() == size && st.stored.tree.root() == root {
                true => Ok(()),
                false => {
                    Err(Damage { what: "commit record".into(), reason: "is not that from before the lock" }
                        .into())
                }
            });
        times.bump_content_version();
        st.times = times;
        if loaded.is_err() {
            st.fault = Some(Fault::Away);
            st.stored.base.size = size;
            st.stored.base.root = root;
            st.dirty.size = size;
        }
        loaded
    }
}
