//! Every mutation of a valid plan, schedule, layout or fused step is caught by its checker, or is right after all.
//!
//! The example `mutations` makes any number of them and prints the same table.

#[path = "common/planned.rs"]
mod planned;

use remat::testing::Choices;
use remat::testing::mutation::{Specimen, Table};
use remat::testing::random::specimen;

const N_RANDOM: u64 = 60;
/// Of each kind and specimen.
const N_EACH: usize = 4;
/// Real models are larger, and to run one again takes longer.
const N_EACH_OF_MODELS: usize = 2;

#[test]
fn no_mutation_passes() {
    let mut table = Table::default();
    let mut choices = Choices::of_seed(1);
    for (prepared, program) in planned::programs() {
        let before = prepared.before_fusion.clone().expect("models are fused");
        let name = before.graph.name.clone();
        table.attack(&Specimen { name, before, prepared, program }, N_EACH_OF_MODELS, &mut choices);
    }
    for seed in 0..N_RANDOM {
        if let Some(specimen) = specimen(seed).expect("a valid step") {
            table.attack(&specimen, N_EACH, &mut choices);
        }
    }
    println!("{table}");
    assert_eq!(table.survivors(), Vec::<String>::new());
    let unused: Vec<_> = table.rows.iter().filter(|row| row.n_seeded < 20).collect();
    assert!(unused.is_empty(), "kinds that hardly ever find something to break: {unused:?}");
}
