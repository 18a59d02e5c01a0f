//! The colours of all charts, on the report page and in pictures.
//!
//! They were chosen by Okabe and Ito so that people with any kind of colour vision can tell them apart, without the yellow, which
//! vanishes on white; a purple and greys take its place.

use serde_json::{Value, json};

/// The colour of each kind of memory, in the order in which they are stacked.
pub const KINDS: [(&str, &str); 8] = [
    ("parameter", "#0072B2"),
    ("optimizer_state", "#56B4E9"),
    ("buffer", "#8C8C8C"),
    ("input", "#CC79A7"),
    ("activation", "#E69F00"),
    ("gradient", "#009E73"),
    ("output", "#5B5B5B"),
    ("workspace", "#6A3D9A"),
];

/// The colours of lines and bars, in their order.
pub const SERIES: [&str; 7] = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#6A3D9A", "#8C8C8C"];

/// What is computed again. No kind of memory and no series has this colour.
pub const RECOMPUTE: &str = "#D55E00";

/// Budgets, marks and text on a light background.
pub const INK: &str = "#222222";

/// Marks that matter less.
pub const FAINT: &str = "#777777";

/// The colour of a kind of memory.
pub fn of_kind(name: &str) -> &'static str {
    KINDS.iter().find(|(kind, _)| *kind == name).map_or(FAINT, |(_, colour)| colour)
}

/// The colour of a line or bar by its number; they repeat when there are many.
pub fn of_series(index: usize) -> &'static str {
    SERIES[index % SERIES.len()]
}

/// The palette as the report page reads it.
pub fn document() -> Value {
    let kinds: Vec<Value> = KINDS.iter().map(|(name, colour)| json!([name, colour])).collect();
    json!({"kinds": kinds, "series": SERIES, "recompute": RECOMPUTE})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Kind;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_has_a_colour_of_its_own_and_none_is_that_of_recomputation() {
        let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        let kinds = Kind::ALL.iter().map(|kind| kind.name()).chain(["workspace"]);
        assert_eq!(names, kinds.collect::<Vec<_>>());
        let colours: BTreeSet<&str> = KINDS.iter().map(|(_, colour)| *colour).chain([RECOMPUTE]).collect();
        assert_eq!(colours.len(), KINDS.len() + 1);
        assert!(!SERIES.contains(&RECOMPUTE));
    }
}
