//! The effects of limits and hardware on a mount.

use super::finding::Diagnosis;
use crypto::{cipher::Cipher, variants};
use rustix::process::{Resource, geteuid, getrlimit};

/// Descriptors needed so that a mount never waits for the kernel to enlarge its descriptor table.
const FILES: u64 = 16 << 10;
/// Bytes of locked memory: generous for the secrets that exist at once during unlocking, at one page
/// each.
const LOCKED: u64 = 64 << 10;

/// All findings about the machine.
pub fn findings() -> [Diagnosis; 4] {
    [open_files(), locked_memory(), processor(), gpu()]
}

fn shown(limit: Option<u64>, unit: &str) -> String {
    limit.map_or("none".to_owned(), |limit| format!("{limit}{unit}"))
}

/// Checks the hard limit: a mount raises its own soft limit to that.
fn open_files() -> Diagnosis {
    let most = getrlimit(Resource::Nofile).maximum;
    let found = Diagnosis::ok("limit of open files", shown(most, ""));
    if most.is_none_or(|most| most >= FILES) {
        return found;
    }
    let cost = "each open file of a mount takes one, and opening pauses while their table grows";
    let mend = format!("echo '* hard nofile {FILES}' >> /etc/security/limits.d/warpcrypt.conf");
    found.slower(cost, format!("as root: {mend}; then log in again"))
}

fn locked_memory() -> Diagnosis {
    let bytes = getrlimit(Resource::Memlock).current;
    let found = Diagnosis::ok("limit of locked memory", shown(bytes.map(|bytes| bytes >> 10), " KiB"));
    if geteuid().is_root() || bytes.is_none_or(|bytes| bytes >= LOCKED) {
        return found;
    }
    let mend = format!("echo '* - memlock {}' >> /etc/security/limits.d/warpcrypt.conf", LOCKED >> 10);
    found.missing("keys may be written to swap", format!("as root: {mend}; then log in again"))
}

fn processor() -> Diagnosis {
    let ctr = |cipher| variants::ctrs(cipher).last().map_or("", |ctr| ctr.name);
    let (aes, kuznyechik) = (ctr(Cipher::Aes256), ctr(Cipher::Kuznyechik));
    let tags = variants::tags().last().map_or("", |tags| tags.name);
    let found =
        Diagnosis::ok("processor", format!("AES by {aes}, Kuznyechik by {kuznyechik}, tags by {tags}"));
    let lacking: Vec<&str> =
        features().into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect();
    if lacking.is_empty() {
        return found;
    }
    let mend = "in a virtual machine, pass the host's processor on (QEMU: -cpu host)";
    found.slower(format!("there is no {}", lacking.join(", ")), mend)
}

/// CPU features that the fastest implementations need, and whether this processor has them.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<(&'static str, bool)> {
    let avx512 = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl");
    vec![
        ("AES-NI", is_x86_feature_detected!("aes")),
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("BMI2", is_x86_feature_detected!("bmi2")),
        ("VAES", is_x86_feature_detected!("vaes")),
        ("AVX-512", avx512),
        ("AVX-512 VBMI", is_x86_feature_detected!("avx512vbmi")),
        ("GFNI", is_x86_feature_detected!("gfni")),
    ]
}

/// Other processors use the portable implementations.
#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<(&'static str, bool)> {
    vec![("x86-64", false)]
}

/// A GPU is optional. Only an installed one that is not used is a problem.
fn gpu() -> Diagnosis {
    match engine::gpus() {
        Ok(count) => Diagnosis::ok("GPU", format!("{count} with a driver")),
        Err(why) if engine::gpu_is_installed() => Diagnosis::ok("GPU", why).slower(
            "the GPU of this machine is not used",
            "as root: apt-get install nvidia-driver; then restart. `nvidia-smi` shows whether the driver works",
        ),
        Err(why) => Diagnosis::ok("GPU", format!("none, and none is needed: {why}")),
    }
}
