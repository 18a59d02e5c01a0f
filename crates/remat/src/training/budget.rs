//! What can be given as a budget.

use crate::error::{Error, Result};
use remat_plan::{Budget, Bytes};

/// A budget, or a text that reads as one: `8GiB`, `8GB`, `123456789B`, `50%`.
pub trait IntoBudget {
    /// The budget, or what is wrong with the text.
    fn into_budget(self) -> Result<Budget>;
}

impl IntoBudget for Budget {
    fn into_budget(self) -> Result<Budget> {
        Ok(self)
    }
}

impl IntoBudget for Bytes {
    fn into_budget(self) -> Result<Budget> {
        Ok(Budget::Bytes(self))
    }
}

impl IntoBudget for &str {
    fn into_budget(self) -> Result<Budget> {
        self.parse().map_err(|error: remat_plan::BudgetError| Error::Budget { message: error.to_string() })
    }
}

impl IntoBudget for String {
    fn into_budget(self) -> Result<Budget> {
        self.as_str().into_budget()
    }
}
