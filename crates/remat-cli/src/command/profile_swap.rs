//! What moving the activations of a step would take: all of them together, and those whose copies would be hidden.

use crate::format::{count, facts, plural, seconds};
use remat::report::ActivationRow;
use remat_plan::Bytes;
use serde::Serialize;

/// Copies of activations to the store with the shortest way there and back.
#[derive(Serialize)]
pub(super) struct Swap {
    stores: Vec<String>,
    n_activations: usize,
    bytes: Bytes,
    out_seconds: f64,
    in_seconds: f64,
    /// Activations that are idle for longer than both copies take. Each alone could be moved for nothing; together they share
    /// the channels.
    n_idle_long_enough: usize,
    idle_long_enough_bytes: Bytes,
}

impl Swap {
    /// Nothing without a store.
    pub(super) fn of(stores: Vec<String>, rows: &[ActivationRow]) -> Option<Swap> {
        if stores.is_empty() {
            return None;
        }
        let copies = |row: &ActivationRow| row.swap_out_s.unwrap_or(0.0) + row.swap_in_s.unwrap_or(0.0);
        let idle = || rows.iter().filter(|row| row.inactive_time_s > copies(row));
        Some(Swap {
            stores,
            n_activations: rows.len(),
            bytes: rows.iter().map(|row| row.median_mem_size_bytes).sum(),
            out_seconds: rows.iter().filter_map(|row| row.swap_out_s).sum(),
            in_seconds: rows.iter().filter_map(|row| row.swap_in_s).sum(),
            n_idle_long_enough: idle().count(),
            idle_long_enough_bytes: idle().map(|row| row.median_mem_size_bytes).sum(),
        })
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let Swap { n_activations, bytes, out_seconds, in_seconds, idle_long_enough_bytes, .. } = self;
        let copies = format!("{} out, {} in", seconds(*out_seconds), seconds(*in_seconds));
        let idle = count(self.n_idle_long_enough);
        facts([
            ("stores", self.stores.join(", ")),
            ("moving all activations", format!("{}, {bytes}: {copies}", plural(*n_activations, "value"))),
            ("idle for longer than their copies", format!("{idle} of them, {idle_long_enough_bytes}")),
        ])
    }
}
