//! `export` to a disk that has space for the files, but not for their attributes.

use crate::{
    cli::transfer::{command, counts, json, place},
    support::{disk::Ext4, mounted::Vault, random::Random, ready_as_root},
};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde_json::Value;
use std::{fs, path::Path};

/// Files with an attribute that needs a separate block.
const FILES: u64 = 500;
const VALUE: usize = 3000;
/// More than ext4 stores for one file, however much space there is.
const TOO_LONG: usize = 5000;

fn set(path: &Path, value: &[u8]) {
    setxattr(path, "user.note", value, XattrFlags::empty()).expect("setxattr");
}

#[test]
fn a_file_whose_attributes_find_no_room_is_not_there_until_they_do() {
    if !ready_as_root(&["mkfs.ext4", "losetup"]) {
        return;
    }
    let mut random = Random::new("full");
    let vault = Vault::new("aes-256-ctr");
    let [image, out] = ["image", "out"].map(|name| place(&vault, name));
    let mount = vault.mount();
    for number in 0..FILES {
        let path = mount.join(number.to_string());
        fs::write(&path, "").expect("write");
        set(&path, &random.bytes(VALUE));
    }
    mount.unmount();
    let disk = Ext4::at(&image, &out);
    let filler = disk.0.join("filler");
    fs::write(&filler, vec![1; 13 << 19]).expect("write");
    let (code, value) = json(&mut command("export", &vault, &[&out]));
    assert!(code == 31 && counts(&value)[0] < FILES, "{code}: {value}");
    fs::remove_file(filler).expect("remove");
    let (code, value) = json(&mut command("export", &vault, &[&out]));
    assert_eq!((code, &value["not_kept"]), (0, &Value::Array(Vec::new())));
    for number in 0..FILES {
        let path = out.join(number.to_string());
        assert_eq!(getxattr(path, "user.note", &mut vec![0; VALUE]), Ok(VALUE), "{number}");
    }

    let mount = vault.mount();
    fs::write(mount.join("more than it keeps"), "content").expect("write");
    set(&mount.join("more than it keeps"), &[7; TOO_LONG]);
    mount.unmount();
    let (code, value) = json(&mut command("export", &vault, &[&out]));
    let lost = &value["not_kept"][0];
    assert_eq!(
        (code, counts(&value)[0], &lost["what"], &lost["count"]),
        (0, 1, &"user.note".into(), &1.into())
    );
}
