//! Resources used by a process and its descendants: a mount may delegate part of its work to other
//! processes, such as a GPU's.

use std::fs;

/// Resources that the processes have used.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Processor seconds since their start, including ended processes.
    pub cpu: f64,
    /// In bytes: the peak memory of the first process since the last reset, plus the current unshared
    /// memory of the others.
    pub peak: u64,
}

/// A process as described in `/proc`.
struct Process {
    number: u32,
    parent: u32,
    /// Ticks of the process and of the children that it has waited for.
    used: u64,
}

impl Process {
    fn read(number: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // proc_pid_stat(5). The second field may contain blanks and ends with a parenthesis; these are the
        // fields from the third on.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let used = fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>());
        let used = used.sum::<Result<u64, _>>().ok()?;
        Some(Process { number, parent: fields.get(1)?.parse().ok()?, used })
    }

    /// Bytes in a field of its `status`.
    fn memory(&self, field: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.number)).ok()?;
        let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    }
}

/// Usage of a process and its descendants. `None` if it does not exist or may not be inspected.
pub fn of(number: u32) -> Option<Usage> {
    let family = family(number)?;
    let ticks: u64 = family.iter().map(|process| process.used).sum();
    // A process that has just ended has none.
    let own = |child: &Process| ["RssAnon", "RssFile"].map(|field| child.memory(field).unwrap_or(0));
    let peak = family[0].memory("VmHWM")? + family[1..].iter().flat_map(own).sum::<u64>();
    Some(Usage { cpu: ticks as f64 / rustix::param::clock_ticks_per_second() as f64, peak })
}

/// The process, followed by its descendants.
fn family(number: u32) -> Option<Vec<Process>> {
    let mut family = vec![Process::read(number)?];
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut others: Vec<Process> = numbers.filter_map(Process::read).collect();
    let mut at = 0;
    while at < family.len() {
        let parent = family[at].number;
        let (children, rest) = others.into_iter().partition(|process| process.parent == parent);
        family.extend(children);
        others = rest;
        at += 1;
    }
    Some(family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        process::{Command, Stdio},
        thread::yield_now,
    };

    #[test]
    fn children_count_while_they_live_and_once_they_have_ended() {
        const WORK: &str = "(while :; do :; done) & read line; kill $!; wait $!; read end";
        let mut shell = Command::new("sh").args(["-c", WORK]).stdin(Stdio::piped()).spawn().expect("a shell");
        let number = shell.id();
        let used = || of(number).expect("it is there");
        while used().cpu < 0.2 {
            yield_now();
        }
        let alone = &family(number).expect("it is there")[0];
        assert!(alone.used < 10, "the shell itself does nothing");
        assert!(used().peak > alone.memory("VmHWM").expect("it has some"));
        let mut line = shell.stdin.take().expect("a pipe");
        line.write_all(b"\n").expect("it reads");
        while family(number).expect("it is there").len() > 1 {
            yield_now();
        }
        assert!(used().cpu >= 0.2);
        drop(line);
        shell.wait().expect("its end");
        assert!(of(number).is_none());
    }
}
