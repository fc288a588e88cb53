//! Kernel features that mounts use.

use super::finding::Diagnosis;
use crate::cli::confined;
use fuse::{MOST_PAGES, PAGES, RINGS};
use serde_json::Value;
use std::{
    fs,
    process::{Command, Stdio},
};

/// Linux versions that introduced features, and the cost of lacking each. Newest first.
const BROUGHT: [((u32, u32), &str); 3] = [
    ((6, 14), "new files are written through the kernel's cache"),
    ((6, 6), "files opened with O_DIRECT or --cache direct cannot be mapped for sharing"),
    ((5, 12), "every write asks for an extended attribute first"),
];

/// All findings about the kernel.
pub fn findings() -> [Diagnosis; 4] {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    [version(release.trim()), request_size(), rings(), confinement()]
}

fn version(release: &str) -> Diagnosis {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let costs: Vec<&str> =
        BROUGHT.iter().filter(|(since, _)| version < *since).map(|(_, cost)| *cost).collect();
    let found = Diagnosis::ok("kernel", release);
    if costs.is_empty() { found } else { found.slower(costs.join("; "), "boot Linux 6.14 or later") }
}

fn request_size() -> Diagnosis {
    const NAME: &str = "max_pages_limit";
    const COST: &str = "streams need more requests";
    let setting = fs::read_to_string(MOST_PAGES).ok().and_then(|text| text.trim().parse::<u32>().ok());
    match setting {
        None => Diagnosis::ok(NAME, "not in this kernel").slower(COST, "boot Linux 6.13 or later"),
        Some(pages) if pages >= PAGES => Diagnosis::ok(NAME, pages),
        Some(pages) if fs::OpenOptions::new().write(true).open(MOST_PAGES).is_ok() => {
            Diagnosis::ok(NAME, format!("{pages}; a mount raises it to {PAGES}"))
        }
        Some(pages) => Diagnosis::ok(NAME, pages)
            .slower(COST, format!("as root: sysctl -w fs.fuse.max_pages_limit={PAGES}")),
    }
}

fn rings() -> Diagnosis {
    const NAME: &str = "io_uring";
    let setting = fs::read_to_string(RINGS).ok();
    match setting.as_deref().map(str::trim) {
        None => Diagnosis::ok(NAME, "not for FUSE in this kernel: needs Linux 6.14"),
        Some("Y") => Diagnosis::ok(NAME, "offered; `mount --io-uring auto` uses it"),
        Some(_) if fs::OpenOptions::new().write(true).open(RINGS).is_ok() => {
            Diagnosis::ok(NAME, "`mount --io-uring auto` switches it on")
        }
        Some(_) => Diagnosis::ok(NAME, format!("off; as root: echo Y > {RINGS}")),
    }
}

/// Starts a process that is confined like a mount's, and reports which operations it was refused.
fn confinement() -> Diagnosis {
    let mut command = Command::new("/proc/self/exe");
    command.arg(confined::COMMAND).stdin(Stdio::null()).stderr(Stdio::null());
    let report = command.output().ok().and_then(|output| serde_json::from_slice(&output.stdout).ok());
    confined_by(&report.unwrap_or_default())
}

fn confined_by(report: &Value) -> Diagnosis {
    const NAME: &str = "confinement";
    let tried = [("files", "other files"), ("programs", "programs"), ("network", "the network")];
    let (refused, left): (Vec<_>, Vec<_>) =
        tried.into_iter().partition(|(name, _)| report["refused"][name] == true);
    let names =
        |all: Vec<(&str, &'static str)>| all.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
    if left.is_empty() {
        return Diagnosis::ok(NAME, format!("a mount's process is refused {}", names(refused)));
    }
    let found = Diagnosis::ok(
        NAME,
        if refused.is_empty() { "none".to_owned() } else { format!("from {}", names(refused)) },
    );
    found.missing(
        format!("a mount's process is not kept from {}", names(left)),
        "boot Linux 5.19 or later with seccomp and with `landlock` in lsm=; mount /proc without hidepid",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_refused_is_told() {
        let cost = |report: &Value| confined_by(report).json()["cost"].as_str().map(str::to_owned);
        let of =
            |files| serde_json::json!({ "refused": { "files": files, "programs": true, "network": true } });
        assert_eq!(cost(&of(true)), None);
        assert!(cost(&of(false)).is_some_and(|cost| cost.ends_with(" from other files")));
        assert!(cost(&Value::Null).is_some_and(|cost| cost.ends_with("programs, the network")));
    }

    #[test]
    fn an_older_kernel_lacks_more() {
        let costs = |release: &str| version(release).json()["cost"].as_str().map(str::to_owned);
        assert_eq!((costs("6.14.0-1-amd64"), costs("7.0")), (None, None));
        assert_eq!(costs("6.12.43+deb13").as_deref(), Some(BROUGHT[0].1));
        assert!(costs("6.1.0-39").is_some_and(|cost| cost.contains("mapped") && !cost.contains("attribute")));
        assert!(costs("5.10.0").is_some_and(|cost| cost.contains("attribute")));
    }
}
