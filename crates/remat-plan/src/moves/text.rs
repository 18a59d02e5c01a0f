//! Moves for people.

use super::{Away, LinkUse, MovedValue, Moves};
use crate::spec::Way;
use crate::units::Bytes;
use std::fmt;

impl fmt::Display for LinkUse {
    /// Without a unit of its own: what a copy takes is in the unit of the problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.way == Way::Out.to_string() { "out to" } else { "in from" };
        let copies = if self.n_copies == 1 { "copy" } else { "copies" };
        write!(f, "{} {direction} {}: {} {copies}", self.bytes, self.store, self.n_copies)
    }
}

impl fmt::Display for MovedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value)?;
        if let Some(module) = &self.module {
            write!(f, " in {module}")?;
        }
        write!(f, ", {}", self.store)?;
        if self.rests {
            write!(f, ", rests there between steps")?;
        }
        if let Some((start, end)) = self.out {
            write!(f, ", out from {start:.6} to {end:.6}")?;
        }
        if let Some((start, end)) = self.back {
            write!(f, ", in from {start:.6} to {end:.6}")?;
        }
        Ok(())
    }
}

impl Moves {
    /// How many entries the text shows.
    const SHOWN: usize = 10;

    fn write_value(&self, f: &mut fmt::Formatter<'_>, moved: &MovedValue) -> fmt::Result {
        let unit = &self.cost_unit;
        writeln!(f, "  {:>12}  {moved}", moved.bytes.to_string())?;
        let Some(away) = &moved.away else { return Ok(()) };
        let Away { from_step, to_step, tightest_step, tightest_name, used_bytes, .. } = away;
        write!(f, "                away from step {from_step} to {to_step}: kept, step {tightest_step} ")?;
        match away.excess_if_kept_bytes {
            Bytes::ZERO => write!(f, "({tightest_name}, {used_bytes}) would still fit")?,
            excess => write!(f, "({tightest_name}, {used_bytes}) would be {excess} over the budget")?,
        }
        if moved.waited > 0.0 {
            write!(f, "; waited for {:.6} {unit}", moved.waited)?;
        }
        match moved.maker_cost {
            Some(cost) => writeln!(f, "; running its maker again would take {cost:.6} {unit}"),
            None => writeln!(f),
        }
    }
}

impl fmt::Display for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = &self.cost_unit;
        let n_values = self.values.len();
        writeln!(f, "moved to and from stores: {n_values} value{}", if n_values == 1 { "" } else { "s" })?;
        for link in &self.links {
            writeln!(f, "  {link}, {:.6} {unit}", link.busy)?;
        }
        writeln!(
            f,
            "  {:.1} % of {:.6} {unit} of copying is hidden; the step waits {:.6} {unit}",
            self.hidden_percent, self.copying, self.waiting
        )?;
        if self.n_resting > 0 {
            let (n, bytes) = (self.n_resting, self.resting_bytes);
            writeln!(f, "  {n} values of {bytes} rest in a store between steps")?;
        }
        for moved in self.values.iter().take(Self::SHOWN) {
            self.write_value(f, moved)?;
        }
        if n_values > Self::SHOWN {
            writeln!(f, "  ... and {} more moved values", n_values - Self::SHOWN)?;
        }
        Ok(())
    }
}
