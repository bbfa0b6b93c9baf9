//! CPU time, memory and file descriptors of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of CPU times in `/proc`, per second (`USER_HZ`): 100 on every Linux.
const TICKS_PER_SECOND: u32 = 100;

/// Returns the user and system time of all threads of a process so far, also of one that has just ended.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path)
        .with_context(|| format!("read {path}: the benchmarks need Linux and a living process"))?;
    ticks(&stat)
        .map(|ticks| Duration::from_secs(ticks) / TICKS_PER_SECOND)
        .with_context(|| format!("{path} has no CPU times: {stat}"))
}

/// Returns the CPU time of a process and its direct children. This includes ended children that the process has waited for.
pub(crate) fn cpu_with_children(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    // A child that ends before the next read may count twice in this call, and not in later ones.
    let living: Duration = children.filter_map(|child| cpu(child).ok()).sum();
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let own = ticks_with_ended_children(&stat)
        .map(|ticks| Duration::from_secs(ticks) / TICKS_PER_SECOND)
        .with_context(|| format!("{path} has no CPU times: {stat}"))?;
    Ok(own + living)
}

fn ticks(stat: &str) -> Option<u64> {
    sum_of_times(stat, 2)
}

fn ticks_with_ended_children(stat: &str) -> Option<u64> {
    sum_of_times(stat, 4)
}

/// Sums the first `count` time fields: user, system, and the same two of ended children.
fn sum_of_times(stat: &str, count: usize) -> Option<u64> {
    // The second field is the program's name in parentheses, and may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times: Vec<u64> = fields
        .split(' ')
        .skip(11)
        .take(count)
        .map_while(|field| field.parse().ok())
        .collect();
    (times.len() == count).then(|| times.iter().sum())
}

/// Returns the CPU time of all cores and processes so far: user, system, interrupts, and the time that a hypervisor
/// stole.
pub(crate) fn busy() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    busy_ticks(&stat)
        .map(|ticks| Duration::from_secs(ticks) / TICKS_PER_SECOND)
        .context("/proc/stat says something else than times")
}

/// Parses `cpu  user nice system idle iowait irq softirq steal ..`.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|t| t.parse().ok())
        .collect();
    let idle = ticks.get(3..5)?.iter().sum::<u64>();
    Some(ticks.get(..8)?.iter().sum::<u64>() - idle)
}

/// Returns the maximum resident memory of a process so far (`VmHWM`), in MiB.
pub(crate) fn peak_mib(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0)
        .with_context(|| format!("{path} has no VmHWM"))
}

/// Returns the number of open file descriptors of a process.
pub(crate) fn files(pid: u32) -> Result<usize> {
    let path = format!("/proc/{pid}/fd");
    let files = fs::read_dir(&path).with_context(|| format!("read {path}"))?;
    Ok(files.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 31 11 0 0 20 0 1";
        assert_eq!(ticks(stat), Some(42));
        let stat = "7 (a) S 1 2 3 4 5 6 7 8 9 10 31 11 100 200 20 0 1";
        assert_eq!(ticks_with_ended_children(stat), Some(342));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn idle_time_and_waiting_for_disks_are_not_busy() {
        let stat = "cpu  1 2 4 1000 2000 8 16 32 64 128\ncpu0 5 5";
        assert_eq!(busy_ticks(stat), Some(63));
        assert_eq!(busy_ticks("cpu  1 2"), None);
    }

    #[test]
    fn this_process_has_used_something() {
        assert!(peak_mib(std::process::id()).unwrap() > 1.0);
        assert!(files(std::process::id()).unwrap() > 2);
        assert!(busy().unwrap() >= cpu(std::process::id()).unwrap());
    }
}
