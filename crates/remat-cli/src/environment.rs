//! On what and when something was measured: a small document beside every result.

use crate::format::facts;
use crate::output::{Paint, Report};
use crate::{memory, threads};
use remat_plan::Bytes;
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine and the moment.
#[derive(Serialize)]
pub(crate) struct Environment {
    date: String,
    version: &'static str,
    command: String,
    system: String,
    processor: Option<String>,
    instruction_set: &'static str,
    threads_available: usize,
    memory_total_bytes: Option<Bytes>,
    memory_limit_bytes: Option<Bytes>,
}

impl Environment {
    /// This machine, now, and the command that is running.
    pub(crate) fn now() -> Environment {
        let words = std::env::args().skip(1);
        Environment {
            date: date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            version: env!("CARGO_PKG_VERSION"),
            command: std::iter::once("remat".to_owned()).chain(words).collect::<Vec<_>>().join(" "),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            processor: processor(),
            instruction_set: remat::isa::current().name(),
            threads_available: threads::available(),
            memory_total_bytes: memory::total(),
            memory_limit_bytes: memory::group_limit(),
        }
    }
}

impl Report for Environment {
    const SCHEMA: &'static str = "remat.environment/1";

    fn text(&self, _: Paint) -> String {
        let processor = self.processor.clone().unwrap_or_else(|| "unknown processor".to_owned());
        let memory = self.memory_total_bytes.map_or_else(String::new, |bytes| format!(", {bytes}"));
        facts([
            ("date", self.date.clone()),
            (
                "machine",
                format!("{processor} ({}), {} threads{memory}", self.instruction_set, self.threads_available),
            ),
            ("command", self.command.clone()),
        ])
    }
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// The date of a moment in UTC, as `2026-11-16 02:45`.
fn date(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Counting years from March puts the leap day at the end of a year, so months have fixed lengths before it.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", seconds / 3600, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As printed by `date -u -d @N`.
        let known = [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_827_696, "2000-02-29 12:34"),
            (1_709_210_096, "2024-02-29 12:34"),
            (1_794_882_060, "2026-11-17 02:21"),
            (4_107_542_400, "2100-03-01 00:00"),
        ];
        for (seconds, text) in known {
            assert_eq!(date(seconds), text);
        }
    }
}
