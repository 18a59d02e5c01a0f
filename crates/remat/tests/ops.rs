//! Every op of the list, tested on its own examples: nothing here knows a particular op.

use remat::op::{self, Example};
use remat::testing::check_examples;

#[test]
fn every_op_passes_the_checks() {
    for entry in op::all() {
        check_examples(entry.name, &(entry.examples)());
    }
}

#[test]
fn attributes_survive_their_text_form() {
    for Example { op, .. } in op::all().iter().flat_map(|entry| (entry.examples)()) {
        let text = op.attributes().to_string();
        let attributes = serde_json::from_str(&text).expect("attributes are JSON");
        assert_eq!(op::read(op.name(), attributes), Ok(op));
    }
}
