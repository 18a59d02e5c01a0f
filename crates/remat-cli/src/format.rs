//! Numbers and tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use remat::profile::Sample;
use remat_plan::Shown;

/// A duration with three digits and the unit that suits it.
pub(crate) fn seconds(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        0.0 => (0.0, "s"),
        s if s < 1e-3 => (seconds * 1e6, "µs"),
        s if s < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let decimals = match value.abs() {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// A median with its spread, where more than one run was timed.
pub(crate) fn timing(sample: Sample) -> String {
    let median = seconds(sample.median);
    if sample.n_runs < 2 { median } else { format!("{median} ± {}", seconds(sample.spread)) }
}

/// A number such as a learning rate: without dozens of zeros.
pub(crate) fn number(x: f64) -> String {
    if x == 0.0 || (1e-4..1e6).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}

/// A cost in a problem's own unit; only seconds are scaled.
pub(crate) fn cost(value: f64, unit: &str) -> String {
    if unit == "s" {
        return seconds(value);
    }
    let digits = format!("{value:.6}");
    format!("{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A change in percent with its sign.
pub(crate) fn change(percent: f64) -> String {
    format!("{percent:+.1} %")
}

/// A share in percent; nothing of nothing is nothing.
pub(crate) fn share(part: f64, whole: f64) -> String {
    format!("{:.1} %", if whole > 0.0 { 100.0 * part / whole } else { 0.0 })
}

/// A count with separators: `25,557,032`.
pub(crate) fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 node`, `2 nodes`.
pub(crate) fn plural(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// How the text of a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows in aligned columns without borders, indented by two spaces, each line ended.
pub(crate) fn table(columns: &[(&str, Align)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(columns.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    table.add_rows(
        rows.into_iter().map(|row| row.iter().map(|cell| Shown(cell).to_string()).collect::<Vec<_>>()),
    );
    for (index, (_, align)) in columns.iter().enumerate() {
        let alignment = if *align == Align::Right { CellAlignment::Right } else { CellAlignment::Left };
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(alignment);
        }
    }
    // Each cell has a space on both sides already; without a header line the names would be one empty line.
    let has_header = columns.iter().any(|(name, _)| !name.is_empty());
    let lines = table.lines().skip(usize::from(!has_header));
    lines.map(|line| format!(" {}\n", line.trim_end())).collect()
}

/// Names and values below each other, as [`table`] prints them.
pub(crate) fn facts<N: Into<String>>(rows: impl IntoIterator<Item = (N, String)>) -> String {
    let rows = rows.into_iter().map(|(name, value)| vec![name.into(), value]);
    table(&[("", Align::Left), ("", Align::Left)], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_the_unit_that_suits_them() {
        let shown = [0.0, 4.2e-7, 0.001_234, 0.098_76, 0.5, 1.0, 12.34, 1234.5].map(seconds);
        assert_eq!(
            shown,
            ["0.00 s", "0.42 µs", "1.23 ms", "98.8 ms", "500 ms", "1.00 s", "12.3 s", "1234 s"]
        );
    }

    #[test]
    fn one_run_has_no_spread_and_long_numbers_have_an_exponent() {
        let sample = |n_runs| Sample { median: 0.5, spread: 0.01, n_runs };
        assert_eq!([timing(sample(1)), timing(sample(2))], ["500 ms", "500 ms ± 10.0 ms"]);
        let shown = [0.0, 0.001, 1.5, 1e30, -1e-5].map(number);
        assert_eq!(shown, ["0", "0.001", "1.5", "1e30", "-1e-5"]);
    }

    #[test]
    fn costs_in_other_units_keep_their_number() {
        let shown = [cost(192_389.0, "10us"), cost(0.5, "J"), cost(0.0, "J"), cost(0.5, "s")];
        assert_eq!(shown, ["192389 10us", "0.5 J", "0 J", "500 ms"]);
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 25_557_032].map(count), ["0", "999", "1,000", "25,557,032"]);
        assert_eq!([plural(1, "node"), plural(2, "node")], ["1 node", "2 nodes"]);
    }

    #[test]
    fn tables_align_numbers_to_the_right_and_have_no_trailing_spaces() {
        let rows = [vec!["a".into(), "1".into()], vec!["long".into(), "100".into()]];
        let shown = table(&[("name", Align::Left), ("n", Align::Right)], rows);
        assert_eq!(shown, "  name    n\n  a       1\n  long  100\n");
        assert_eq!(facts([("x", "1".to_owned())]), "  x  1\n");
    }

    #[test]
    fn shares_of_nothing_are_nothing() {
        assert_eq!(
            (share(1.0, 0.0), share(1.0, 8.0), change(-3.16)),
            ("0.0 %".into(), "12.5 %".into(), "-3.2 %".into())
        );
    }
}
