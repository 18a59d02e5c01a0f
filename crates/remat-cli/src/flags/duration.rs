//! Durations as people write them: `10s`, `1.5s`, `500ms`, `2m`. A number without a unit is refused, as for budgets.

use std::time::Duration;

/// Reads a duration.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let malformed = || format!("`{text}` is not a duration: write for example 10s, 500ms or 2m");
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let value: f64 = text[..end].parse().map_err(|_| malformed())?;
    let scale = match text[end..].trim_start() {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" => return Err(format!("the duration `{text}` has no unit: write {text}s, {text}ms or {text}m")),
        _ => return Err(malformed()),
    };
    Duration::try_from_secs_f64(value * scale).map_err(|_| format!("the duration `{text}` is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for (text, message) in [
            ("10", "has no unit"),
            ("s", "is not a duration"),
            ("-1s", "is not a duration"),
            ("1 year", "is not a duration"),
            ("99999999999999999999999h", "is too long"),
        ] {
            assert!(parse_duration(text).unwrap_err().contains(message), "{text}");
        }
    }
}
