//! `cargo xtask watch PROGRAM ...`: runs a test program and ends it when a test hangs.
//!
//! cargo starts every test program through it (as `runner`) during `cargo xtask test`. Rust's harness says when a test
//! has run for a minute, and which; if such a test runs for longer than [`LIMIT`], or if nothing at all happens for so
//! long, the program and whatever it started are killed, and the last lines name the tests that were running.

use crate::repository::root;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Far more than the slowest test takes on two cores that others use as well.
pub(crate) const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Says that a test has run for [`WARNED_AFTER`].
const WARNING: &str = " has been running for over 60 seconds";
const WARNED_AFTER: Duration = Duration::from_secs(60);

/// Comes after the names of tests that were killed.
pub(crate) const HUNG: &str = " ... FAILED: no end after";

/// What makes cargo start test programs through this one.
pub(crate) fn runner_option() -> Result<String> {
    let program = std::env::current_exe().context("finding this program")?;
    // A list, so that spaces in the path do not split it; TOML quotes strings as JSON does.
    let program = serde_json::to_string(&program).context("quoting the path of this program")?;
    Ok(format!("target.'cfg(all())'.runner=[{program}, \"watch\"]"))
}

/// Runs the program; its exit code, or a failure when it was killed.
pub(crate) fn run(command: &[String]) -> Result<ExitCode> {
    let (program, arguments) = command.split_first().context("watch needs a program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    watch(command, LIMIT)
}

fn watch(mut command: Command, limit: Duration) -> Result<ExitCode> {
    // A group of its own, so that what tests start can be killed with them.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let name = format!("{}", command.get_program().display());
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("starting {name}"))?;
    let stdout = child.stdout.take().context("the program has no output")?;
    // An interrupt reaches only our own group.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("waiting for signals")?;
    }
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut running = Running::new(limit);
    loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                let mut out = std::io::stdout().lock();
                out.write_all(&line).and_then(|()| out.write_all(b"\n")).context("passing on output")?;
                running.see(&String::from_utf8_lossy(&line), Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if interrupted.load(Ordering::Relaxed) {
            kill(&mut child);
            return Ok(ExitCode::from(130));
        }
        if let Some(tests) = running.hanging(Instant::now()) {
            kill(&mut child);
            let seconds = limit.as_secs();
            println!("\ntest {tests}{HUNG} {seconds} s; {name} was killed");
            return Ok(ExitCode::FAILURE);
        }
    }
    let status = child.wait().with_context(|| format!("waiting for {name}"))?;
    if status.code().is_none() {
        println!("\n{name} ended with {status}");
    }
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code.clamp(0, 255) as u8)))
}

/// Ends the program's group; the standard library can only end the program itself.
fn kill(child: &mut Child) {
    let group = format!("-{}", child.id());
    let killed = Command::new("kill").args(["-KILL", "--", &group]).current_dir(root()).status();
    if !killed.is_ok_and(|status| status.success()) {
        // There is nothing left to do when it has ended by itself.
        let _ = child.kill();
    }
    let _ = child.wait();
}

/// The tests that the harness has warned of.
struct Running {
    limit: Duration,
    since: BTreeMap<String, Instant>,
    last_line: Instant,
}

impl Running {
    fn new(limit: Duration) -> Running {
        Running { limit, since: BTreeMap::new(), last_line: Instant::now() }
    }

    fn see(&mut self, line: &str, now: Instant) {
        self.last_line = now;
        if let Some(before) = line.strip_suffix(WARNING) {
            // With one thread the name of the test is on the line already.
            let name = before.rsplit("test ").next().unwrap_or(before);
            self.since.insert(name.to_owned(), now);
        } else if let Some((name, _)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            self.since.remove(name);
        } else if matches!(line, "ok" | "FAILED") && self.since.len() == 1 {
            self.since.clear();
        }
    }

    /// The tests that have been running for too long, if there are any.
    fn hanging(&self, now: Instant) -> Option<String> {
        let left = self.limit.saturating_sub(WARNED_AFTER);
        let names: Vec<&str> = self
            .since
            .iter()
            .filter(|(_, since)| now.duration_since(**since) > left)
            .map(|(name, _)| name.as_str())
            .collect();
        if !names.is_empty() {
            return Some(names.join(", "));
        }
        (now.duration_since(self.last_line) > self.limit).then(|| "(the harness named none)".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_goes_on_after_the_warning_is_named() {
        let start = Instant::now();
        let mut running = Running::new(Duration::from_secs(100));
        for (name, line) in [("a::b", "test a::b"), ("c", "test c ... test c")] {
            running.see(&format!("{line}{WARNING}"), start);
            assert_eq!(running.hanging(start + Duration::from_secs(39)), None);
            assert_eq!(running.hanging(start + Duration::from_secs(41)).as_deref(), Some(name));
            running.see(&format!("test {name} ... ok"), start);
            assert_eq!(running.hanging(start + Duration::from_secs(41)), None);
        }
        assert!(running.hanging(start + Duration::from_secs(101)).is_some(), "nothing happened at all");
    }

    #[test]
    fn a_hanging_program_is_killed_with_what_it_started() {
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60; echo never"]);
        let code = watch(command, Duration::from_millis(300)).unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_exit_code_is_passed_on() {
        for code in [0, 101] {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {code}")]);
            let seen = watch(command, Duration::from_secs(60)).unwrap();
            assert_eq!(format!("{seen:?}"), format!("{:?}", ExitCode::from(code)));
        }
    }
}
