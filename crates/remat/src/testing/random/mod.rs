//! Random training steps: small models made of every op, with odd shapes, views, shared inputs, tied parameters, several
//! losses, dropout, batch norm, gradient accumulation and clipping.
//!
//! [`random_step`] makes one from [`Choices`]: a seed for tests and campaigns, bytes for fuzzers. [`check_step`] carries it
//! through the whole pipeline in every way of [`WAYS`] and holds each program against the oracle. New ops join with a row
//! of [`LAYERS`] or [`LOSSES`], new kinds of plans with a row of [`WAYS`].
//!
//! ```
//! use remat::testing::random::{Choices, check_step, random_step};
//!
//! let step = random_step(&mut Choices::of_seed(3))?;
//! let seen = check_step(&step, &mut Choices::of_seed(4)).unwrap();
//! assert!(seen.n_programs > 0);
//! # Ok::<(), remat::Error>(())
//! ```

mod campaign;
mod choices;
mod evaluation;
mod grow;
mod images;
mod layers;
mod losses;
mod moves;
mod plans;

pub use campaign::{Failure, Seen, check_seed, check_step, specimen};
pub use choices::{Choices, shrink};
pub use grow::Growth;
pub use layers::{LAYERS, Layer};
pub use losses::LOSSES;
pub use plans::{WAYS, Way};

use crate::error::Result;
use crate::graph::{Graph, Init};
use crate::op::add::Add;
use crate::op::scale::Scale;
use crate::optimizer::{Optimizer, Rule};

/// Layers at least, and how many more at most.
const LAYERS_OF_A_MODEL: (usize, usize) = (3, 14);

/// A model with its optimizer.
#[derive(Clone, PartialEq, Debug)]
pub struct RandomStep {
    /// A graph whose only output is the loss.
    pub forward: Graph,
    /// How gradients become updates.
    pub optimizer: Optimizer,
}

/// The step that the choices decide on.
pub fn random_step(choices: &mut Choices) -> Result<RandomStep> {
    let optimizer = random_optimizer(choices);
    let mut g = Growth::new("random", choices);
    begin(&mut g)?;
    for i in 0..LAYERS_OF_A_MODEL.0 + g.choices.below(LAYERS_OF_A_MODEL.1) {
        let layer = g.choices.one_of(LAYERS);
        within(&mut g, &format!("blocks.{}.{}{i}", i / 3, layer.name), layer)?;
    }
    for i in 0..=g.choices.below(3) {
        let loss = g.choices.one_of(LOSSES);
        within(&mut g, &format!("losses.{}{i}", loss.name), loss)?;
    }
    if g.losses.is_empty() {
        within(&mut g, "losses.last", LOSSES[0])?;
    }
    let mut total = g.losses[0];
    for at in 1..g.losses.len() {
        let part = g.losses[at];
        let part = if g.choices.below(2) == 1 { g.b.add(Scale { factor: 0.5 }, &[part])? } else { part };
        total = g.b.add(Add {}, &[total, part])?;
    }
    g.b.output(total);
    Ok(RandomStep { forward: g.b.finish(), optimizer })
}

/// Something from the batch, something trained, and both together: values of rank 2, 3 or 4.
fn begin(g: &mut Growth<'_>) -> Result<()> {
    let shape = match g.choices.below(3) {
        0 => vec![g.extent(), g.extent()],
        1 => vec![g.few(4), g.few(7), g.extent()],
        _ => vec![g.few(2), 3 + g.few(5), 3 + g.few(5), g.few(5)],
    };
    let input = g.b.input("input", &shape)?;
    let table = g.parameter("table", &shape, Init::Normal(1.0))?;
    let both = g.b.add(Add {}, &[input, table])?;
    g.pool.extend([input, table, both]);
    Ok(())
}

fn within(g: &mut Growth<'_>, module: &str, layer: Layer) -> Result<()> {
    g.b.enter(module);
    // A layer that nothing in the pool suits leaves the model as it is.
    let grown = (layer.grow)(g);
    g.b.leave();
    grown.map(|_| ())
}

fn random_optimizer(choices: &mut Choices) -> Optimizer {
    let rate = 1e-3;
    let sgd = |momentum, weight_decay, nesterov| {
        let rule = Rule::Sgd { momentum, weight_decay, nesterov };
        Optimizer { rule, ..Optimizer::sgd(rate) }
    };
    let optimizer = match choices.below(5) {
        0 => sgd(0.0, 0.01, false),
        1 => sgd(0.9, 0.0, false),
        2 => sgd(0.9, 0.01, true),
        3 => Optimizer::adam(rate),
        _ => Optimizer::adamw(rate),
    };
    let clip_norm = choices.once_in(3).then_some(0.5);
    let micro_batches = choices.one_of(&[1, 1, 2, 3]);
    Optimizer { clip_norm, micro_batches, ..optimizer }
}
