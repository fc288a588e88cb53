//! `info` and `key list`: show a vault's configuration. They ask for no password, so the configuration
//! is not authenticated.

use super::{
    exit::Outcome,
    json::{self, document},
    locking, log,
    mounts::{self, Mount},
    print, reverse, vaults,
};
use format::{
    config::{VERSION, VaultConfig},
    key_slot::KeySlot,
    printable::printable,
};
use serde_json::{Value, json};
use std::{
    fmt::Write,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

/// Runs `info`.
pub fn run(place: &Path, as_json: bool) -> Outcome {
    let mount = mount_of(place);
    let config = vaults::read(mount.as_ref().map_or(place, |mount| &mount.source))?;
    // Another user's mount cannot be asked; its state is then unknown.
    let state = mount.as_ref().and_then(|mount| locking::state(mount).ok());
    let mounted = mount.as_ref().map(|mount| (mount, state.as_deref()));
    print(&if as_json {
        document("info", info_json(&config, mounted))
    } else {
        info_text(&config, mounted)
    })?;
    Ok(())
}

/// The mount at this place, or of the vault there; writable mounts are preferred. Another user's mount
/// is accepted only by its mount point, since it can claim to be any vault. Compares paths only:
/// accessing another mount's vault could block if that vault is inside a locked one.
fn mount_of(place: &Path) -> Option<Mount> {
    let whole = mounts::resolve(place).ok()?;
    let mut found = mounts::ours();
    found.retain(|mount| mount.target == whole || mount.source == whole && mount.is_own());
    found.into_iter().rev().min_by_key(|mount| (mount.target != whole, mount.read_only))
}

/// Runs `key list`.
pub fn list(vault: &Path, as_json: bool) -> Outcome {
    let config = reverse::read_either(vault)?;
    let slots = || json!({ "slots": slots_json(&config) });
    print(&if as_json { document("key list", slots()) } else { slots_text(&config) })?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// A mount, and its state if known: see [`locking::state`].
type MountState<'a> = Option<(&'a Mount, Option<&'a str>)>;

fn info_json(config: &VaultConfig, mounted: MountState) -> Value {
    let settings = config.settings();
    let state = mounted.and_then(|(_, state)| state);
    let mut value = json!({
        "format": VERSION,
        "vault_id": hex(config.id()),
        "cipher": settings.cipher.name(),
        "integrity": settings.integrity.name(),
        "names": settings.names.name(),
        "key_rotation": config.is_rotating(),
        "locked": state.map(|state| state == fuse::LOCKED),
        "frozen": state.map(|state| state == fuse::FROZEN),
        "read_only": mounted.map(|(mount, _)| mount.read_only),
        "slots": slots_json(config),
    });
    if let Some(members) = value.as_object_mut() {
        json::put_if_named(members, "mounted_at", mounted.map(|(mount, _)| mount.target.as_path()));
    }
    value
}

fn info_text(config: &VaultConfig, mounted: MountState) -> String {
    let settings = config.settings();
    let rotation =
        if config.is_rotating() { "rotation   under way: some of it is under the former key\n" } else { "" };
    let mounted = mounted.map_or_else(
        || "not mounted".to_owned(),
        |(mount, state)| {
            let read_only = if mount.read_only { ", read-only" } else { "" };
            let held = match state {
                Some(fuse::LOCKED) => ", locked",
                Some(fuse::FROZEN) => ", frozen",
                Some(_) | None => "",
            };
            format!("{}{read_only}{held}", printable(&mount.target.to_string_lossy()))
        },
    );
    format!(
        "format     {VERSION}\nvault id   {}\ncipher     {}\nintegrity  {}\nnames      {}\n{rotation}mounted    {mounted}\n\n{}",
        hex(config.id()),
        settings.cipher.name(),
        settings.integrity.name(),
        settings.names.name(),
        slots_text(config)
    )
}

fn slots_json(config: &VaultConfig) -> Value {
    config.slots().iter().map(slot_json).collect()
}

fn slot_json(slot: &KeySlot) -> Value {
    let mut value = json!({
        "id": slot.id,
        "kind": slot.kind().to_string(),
        "created": created(slot),
        "label": slot.label,
    });
    if let Some(cost) = slot.cost() {
        value["argon2id"] =
            json!({ "memory_kib": cost.memory_kib, "passes": cost.passes, "lanes": cost.lanes });
    }
    value
}

fn slots_text(config: &VaultConfig) -> String {
    let mut text = String::from("slot  kind                   made                  label\n");
    for slot in config.slots() {
        let (id, kind, label) = (slot.id, slot.kind().to_string(), slot.label.as_deref().unwrap_or_default());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{id:>4}  {kind:21}  {}  {label}", created(slot));
    }
    text
}

/// A forged configuration may contain any number. Times past the year 9999 are shown as 1970.
fn created(slot: &KeySlot) -> String {
    const YEAR_9999: u64 = 253_402_300_799;
    let seconds = if slot.created > YEAR_9999 { 0 } else { slot.created };
    log::utc(UNIX_EPOCH + Duration::from_secs(seconds))
}
