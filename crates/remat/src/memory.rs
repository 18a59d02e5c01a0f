//! What the operating system says about memory. Everything here is `None` where it says nothing.

use remat_plan::Bytes;
use std::fs;

/// The most memory that this process has had resident since it began, or since [`reset_peak`].
pub fn peak_resident() -> Option<Bytes> {
    field("/proc/self/status", "VmHWM:")
}

/// Restarts counting the peak, so that it says something about what follows. Returns whether that worked.
pub fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Physical memory of the machine.
pub fn total() -> Option<Bytes> {
    field("/proc/meminfo", "MemTotal:")
}

/// What can still be used: what the machine has free, or what is left of this process's control group.
pub fn available() -> Option<Bytes> {
    let machine = field("/proc/meminfo", "MemAvailable:");
    let left = group_limit().zip(group_use()).map(|(limit, used)| limit.saturating_sub(used));
    match (machine, left) {
        (Some(machine), Some(left)) => Some(machine.min(left)),
        (machine, left) => machine.or(left),
    }
}

/// The limit that containers set.
pub fn group_limit() -> Option<Bytes> {
    number("/sys/fs/cgroup/memory.max")
}

/// What the control group holds and cannot give back: file caches do not count.
fn group_use() -> Option<Bytes> {
    let text = fs::read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("anon "))?.trim().parse().ok().map(Bytes)
}

fn number(path: &str) -> Option<Bytes> {
    fs::read_to_string(path).ok()?.trim().parse().ok().map(Bytes)
}

/// A line such as `VmHWM:     1234 kB`.
fn field(path: &str, name: &str) -> Option<Bytes> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_sees_memory_that_was_touched() {
        let before = peak_resident().unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = peak_resident().unwrap();
        // Other tests of this process can only add to the difference.
        assert!(
            after.saturating_sub(before) > Bytes(32 << 20) || before > Bytes(64 << 20),
            "{before} {after}"
        );
        drop(touched);
        assert!(total().unwrap() > Bytes(0) && available().unwrap() > Bytes(0));
    }
}
