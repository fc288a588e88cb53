//! The circumstances of a report: machine, date and program.

use std::{
    env, fs, thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// Date, program, command line, processor, memory, kernel.
pub(super) fn about() -> Vec<(String, String)> {
    let command: Vec<String> =
        env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let cores = thread::available_parallelism().map_or(0, |cores| cores.get());
    let lines = [
        ("date", today()),
        ("program", format!("warpcrypt {}", env!("CARGO_PKG_VERSION"))),
        ("command", format!("warpcrypt-bench {}", command.join(" "))),
        ("processor", format!("{}, {cores} threads", processor())),
        ("memory", memory()),
        ("kernel", read("/proc/sys/kernel/osrelease")),
    ];
    lines.into_iter().map(|(what, value)| (what.to_owned(), value)).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn processor() -> String {
    let table = read("/proc/cpuinfo");
    let model = table.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown".to_owned(), |(_, name)| name.to_owned())
}

fn memory() -> String {
    let table = read("/proc/meminfo");
    let total = table.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> = total.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or("unknown".to_owned(), |kib| format!("{:.0} GiB", kib as f64 / f64::from(1 << 20)))
}

/// The current day in UTC.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The Gregorian date `days` days after 1970-01-01.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        let days = [0, 58, 59, 11_016, 19_782, 20_513];
        let dates = [(1970, 1, 1), (1970, 2, 28), (1970, 3, 1), (2000, 2, 29), (2024, 2, 29), (2026, 3, 1)];
        assert_eq!(days.map(civil), dates);
    }

    #[test]
    fn everything_is_said() {
        assert!(about().iter().all(|(what, value)| !what.is_empty() && !value.is_empty()));
    }
}
