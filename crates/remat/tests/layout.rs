//! Layouts around what has a place already. Packing is in tests/pack.rs; small layouts, and one case for every kind of fault, are
//! text cases in tests/corpus/; broken layouts of whole steps are in tests/mutations.rs.

#[path = "common/planned.rs"]
mod planned;

use remat::layout::{LayoutFault, assign_around, check};
use remat_plan::Bytes;

/// Evaluation is laid out around the state of training; nothing but its checker sees that the state is where it was.
#[test]
fn state_that_has_a_place_must_keep_it() {
    let (_, program) = planned::programs().remove(0);
    let (schedule, training) = (program.schedule(), program.layout());
    let graph = &schedule.graph;
    let states = graph.sources.iter().map(|s| s.value).filter(|&v| graph.values[v].kind.is_state());
    let mut placed: Vec<_> = states.map(|v| (v, training.offset[v].expect("state has a place"))).collect();
    let around = assign_around(schedule, &placed, Bytes(u64::MAX)).expect("a right layout");
    assert_eq!(check(schedule, &around, &placed), Vec::new());
    let (value, offset) = placed[0];
    placed[0].1 = offset + 64;
    let fault = LayoutFault::Displaced { value, expected: offset + 64, found: offset };
    assert_eq!(check(schedule, &around, &placed), [fault]);
}
