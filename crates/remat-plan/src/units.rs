//! Sizes in bytes and memory budgets as people write them.
//!
//! A budget is either an absolute size (`8GiB`, `8GB`, `123456789B`) or a share of the peak that the step has when
//! nothing is recomputed (`50%`). A number without a unit is refused: guessing between bytes and gigabytes would be
//! wrong by nine orders of magnitude.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;
use thiserror::Error;

/// A number of bytes. Sums over one problem cannot overflow, because validation bounds its total (see [`crate::validate`]);
/// any other sum or difference that does not fit panics instead of wrapping around.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// The sum, or `None` when it does not fit.
    pub fn checked_add(self, other: Bytes) -> Option<Bytes> {
        self.0.checked_add(other.0).map(Bytes)
    }

    /// The difference, or `None` when `other` is larger.
    pub fn checked_sub(self, other: Bytes) -> Option<Bytes> {
        self.0.checked_sub(other.0).map(Bytes)
    }

    /// The difference, or zero when `other` is larger.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        self.checked_add(other).expect("sizes add up to less than 2^64 bytes")
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        self.checked_sub(other).expect("no more is taken away than there is")
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

/// Binary units with two decimals: `1.50 GiB`; below one KiB the exact count: `512 B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut size = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // The limit is what would be printed as 1024.00, so that 1023.999 KiB reads 1.00 MiB.
        while size >= 1023.995 && unit + 1 < UNITS.len() {
            size /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{size:.2} {}", UNITS[unit]))
    }
}

/// A memory budget as the user states it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Budget {
    /// An absolute size.
    Bytes(Bytes),
    /// A percentage of the peak of the plan that keeps everything.
    Percent(f64),
}

impl Budget {
    /// The number of bytes, given the peak of the plan that keeps everything. Shares round down.
    pub fn resolve(self, keep_all_peak: Bytes) -> Bytes {
        match self {
            Budget::Bytes(bytes) => bytes,
            // The cast saturates, so an absurd percentage becomes "no limit" instead of a small number.
            Budget::Percent(percent) => Bytes((keep_all_peak.0 as f64 * (percent / 100.0)).floor() as u64),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Budget::Bytes(bytes) => bytes.fmt(f),
            Budget::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Why a text is not a budget.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum BudgetError {
    /// There is no number in front.
    #[error("`{0}` is not a budget: write a size such as 8GiB, 8GB or 123456789B, or a share such as 50%")]
    NotANumber(String),
    /// A bare number.
    #[error("the budget `{0}` has no unit: write {0}GiB, {0}MiB, {0}B or {0}%")]
    NoUnit(String),
    /// An unknown unit.
    #[error(
        "the budget `{text}` has the unknown unit `{unit}`: use B, KiB, MiB, GiB, TiB, kB, MB, GB, TB or %"
    )]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// What follows the number.
        unit: String,
    },
    /// Zero or less.
    #[error("the budget `{0}` must be more than zero")]
    NotPositive(String),
    /// A share where a size is needed.
    #[error("`{0}` is a share: write a size such as 8GiB, 8GB or 123456789B")]
    NotASize(String),
    /// Larger than any memory.
    #[error("the budget `{0}` does not fit in 64 bits")]
    TooLarge(String),
}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Budget, BudgetError> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix('-') {
            let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
            let error = if is_number { BudgetError::NotPositive } else { BudgetError::NotANumber };
            return Err(error(text.to_string()));
        }
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim_start());
        let value: f64 = number.parse().map_err(|_| BudgetError::NotANumber(text.to_string()))?;
        if value <= 0.0 {
            return Err(BudgetError::NotPositive(text.to_string()));
        }
        if !value.is_finite() {
            return Err(BudgetError::TooLarge(text.to_string()));
        }
        if unit == "%" {
            return Ok(Budget::Percent(value));
        }
        let scale: u64 = match unit.to_ascii_lowercase().as_str() {
            "" => return Err(BudgetError::NoUnit(number.to_string())),
            "b" => 1,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(BudgetError::UnknownUnit { text: text.to_string(), unit: unit.to_string() }),
        };
        // Whole numbers are scaled exactly; a fraction is rounded down to a byte.
        let bytes = match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(scale),
            Err(_) => Some(value * scale as f64).filter(|&b| b < u64::MAX as f64).map(|b| b as u64),
        };
        match bytes {
            None => Err(BudgetError::TooLarge(text.to_string())),
            Some(0) => Err(BudgetError::NotPositive(text.to_string())),
            Some(bytes) => Ok(Budget::Bytes(Bytes(bytes))),
        }
    }
}

/// A size with its unit, such as `5GiB`.
impl FromStr for Bytes {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Bytes, BudgetError> {
        match text.parse()? {
            Budget::Bytes(bytes) => Ok(bytes),
            Budget::Percent(_) => Err(BudgetError::NotASize(text.trim().to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check_budget(text: &str, want: Expect) {
        let got = match text.parse::<Budget>() {
            Ok(budget) => format!("{budget:?}"),
            Err(error) => format!("error: {error}"),
        };
        want.assert_eq(&got);
    }

    #[test]
    fn sizes_and_shares_are_budgets() {
        check_budget("8GiB", expect!["Bytes(Bytes(8589934592))"]);
        check_budget("8GB", expect!["Bytes(Bytes(8000000000))"]);
        check_budget(" 1.5 GiB ", expect!["Bytes(Bytes(1610612736))"]);
        check_budget("123456789B", expect!["Bytes(Bytes(123456789))"]);
        check_budget("64KiB", expect!["Bytes(Bytes(65536))"]);
        check_budget("50%", expect!["Percent(50.0)"]);
        check_budget("18446744073709551615B", expect!["Bytes(Bytes(18446744073709551615))"]);
    }

    #[test]
    fn everything_else_is_refused_with_advice() {
        check_budget("8", expect!["error: the budget `8` has no unit: write 8GiB, 8MiB, 8B or 8%"]);
        check_budget(
            "8G",
            expect![
                "error: the budget `8G` has the unknown unit `G`: use B, KiB, MiB, GiB, TiB, kB, MB, GB, TB or %"
            ],
        );
        check_budget("-8GiB", expect!["error: the budget `-8GiB` must be more than zero"]);
        check_budget("0%", expect!["error: the budget `0%` must be more than zero"]);
        check_budget("0.1B", expect!["error: the budget `0.1B` must be more than zero"]);
        check_budget(
            "NaN%",
            expect![
                "error: `NaN%` is not a budget: write a size such as 8GiB, 8GB or 123456789B, or a share such as 50%"
            ],
        );
        check_budget(
            "1.2.3GiB",
            expect![
                "error: `1.2.3GiB` is not a budget: write a size such as 8GiB, 8GB or 123456789B, or a share such as 50%"
            ],
        );
        check_budget("99999999999TiB", expect!["error: the budget `99999999999TiB` does not fit in 64 bits"]);
        check_budget(
            "18446744073709551616B",
            expect!["error: the budget `18446744073709551616B` does not fit in 64 bits"],
        );
    }

    #[test]
    fn a_size_is_read_by_itself_and_a_share_is_refused() {
        assert_eq!("5GiB".parse(), Ok(Bytes(5 << 30)));
        let error = "50%".parse::<Bytes>().unwrap_err().to_string();
        expect!["`50%` is a share: write a size such as 8GiB, 8GB or 123456789B"].assert_eq(&error);
    }

    #[test]
    #[should_panic(expected = "less than 2^64 bytes")]
    fn sums_do_not_wrap_around() {
        let _ = Bytes(u64::MAX) + Bytes(1);
    }

    #[test]
    fn shares_resolve_against_the_peak_that_keeps_everything() {
        assert_eq!(Budget::Percent(100.0).resolve(Bytes(12345)), Bytes(12345));
        assert_eq!(Budget::Percent(50.0).resolve(Bytes(5)), Bytes(2));
        assert_eq!(Budget::Bytes(Bytes(7)).resolve(Bytes(5)), Bytes(7));
    }

    #[test]
    fn sizes_print_with_binary_units() {
        let shown: Vec<String> = [0, 512, 1024, 1536, 1_610_612_736, 1_048_575, u64::MAX]
            .map(|bytes| Bytes(bytes).to_string())
            .to_vec();
        assert_eq!(shown, ["0 B", "512 B", "1.00 KiB", "1.50 KiB", "1.50 GiB", "1.00 MiB", "16.00 EiB"]);
    }
}
