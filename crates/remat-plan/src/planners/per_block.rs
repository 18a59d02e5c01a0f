//! One checkpoint per block, as users of `torch.utils.checkpoint` write it by hand.
//!
//! A block is a module path up to and including its first number (`layer3.12`, `encoder.layers.0`). In a checkpointed
//! block every value that no forward node outside the block reads is dropped after its last forward read and
//! recomputed in backward from the block's inputs. As few blocks as needed are checkpointed, in forward order; with all
//! of them it is the classic recipe. Time: O(blocks * n).
//!
//! [`checkpoint`] is the same by hand: the caller names the modules, and no budget decides.

use crate::answer::{Candidates, outcome};
use crate::ids::ValueId;
use crate::outcome::{Outcome, StopReason, Why};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::Flat;
use crate::schedule::gaps::{Gap, drop_at_the_turn, keep_all, schedule, schedule_or_missing};
use crate::spec::Phase;
use crate::units::Bytes;
use std::ops::Range;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let flat = Flat::new(problem);
    let mut candidates = Candidates::new(&flat, request);
    candidates.offer(&keep_all(&flat));
    let blocks = blocks(problem);
    if blocks.names.is_empty() && !candidates.fits() {
        let why = "no forward node has a module name with a number, such as `layer3.12`, so there are no blocks; \
                   try `sqrt`, which needs no names";
        return Outcome::Infeasible {
            lowest_peak: candidates.lowest_peak(),
            why: Why::NotApplicable(why.into()),
        };
    }

    let is_forward: Vec<bool> = problem.nodes.iter().map(|node| node.phase == Phase::Forward).collect();
    let mut gaps = keep_all(&flat);
    for block in 0..blocks.names.len() {
        if candidates.fits() {
            break;
        }
        drop_inside(&flat, &is_forward, &blocks.of_node, block, &mut gaps);
        candidates.offer(&gaps);
    }
    candidates.finish(problem, "per-block")
}

/// Checkpoints each of the named modules, whatever that costs or saves: what is made inside one is dropped after forward
/// and recomputed in backward from what enters it. A name means the module and everything below it; where two
/// contain each other, the first one named counts.
pub fn checkpoint(problem: &Problem, modules: &[&str]) -> Result<Plan, CheckpointError> {
    let is_within = |path: &str, module: &str| {
        path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_forward: Vec<bool> = problem.nodes.iter().map(|node| node.phase == Phase::Forward).collect();
    let of_node: Vec<Option<usize>> = problem
        .nodes
        .iter()
        .map(|node| {
            let path = node.module.as_deref().filter(|_| node.phase == Phase::Forward)?;
            modules.iter().position(|module| is_within(path, module))
        })
        .collect();
    let is_unknown = |(index, _): &(usize, &&str)| !of_node.contains(&Some(*index));
    if let Some((_, module)) = modules.iter().enumerate().find(is_unknown) {
        return Err(CheckpointError::UnknownModule { module: (*module).to_owned() });
    }
    let flat = Flat::new(problem);
    let gaps_of = |blocks: Range<usize>| {
        let mut gaps = keep_all(&flat);
        blocks.for_each(|block| drop_inside(&flat, &is_forward, &of_node, block, &mut gaps));
        gaps
    };
    let computes = match schedule_or_missing(&flat, &gaps_of(0..modules.len())) {
        Ok(schedule) => schedule.computes,
        Err(value) => {
            // A module that fails alone is to blame; otherwise it is what they are together.
            let fails = |block: &usize| schedule(&flat, &gaps_of(*block..*block + 1)).is_none();
            let alone: Vec<usize> = (0..modules.len()).filter(fails).collect();
            let blamed = if alone.is_empty() { (0..modules.len()).collect() } else { alone };
            return Err(overwritten(problem, blamed.into_iter().map(|block| modules[block]), value));
        }
    };
    let request = Request::new(Bytes(u64::MAX));
    let made = outcome(problem, &request, "checkpoint", &computes, StopReason::BudgetMet);
    let plan = made.to_plan(problem, "checkpoint", request.budget);
    Ok(Plan { budget_bytes: plan.peak_bytes, ..plan })
}

fn overwritten<'a>(problem: &Problem, modules: impl Iterator<Item = &'a str>, value: u32) -> CheckpointError {
    let value = ValueId(value);
    let update = problem.nodes.iter().find(|node| node.consumes.contains(&value));
    CheckpointError::Overwritten {
        modules: modules.map(str::to_owned).collect(),
        value: problem.values[value.index()].name.clone(),
        update: update.map(|node| node.name.clone()).unwrap_or_default(),
    }
}

/// Why modules cannot be checkpointed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The problem has no such module.
    #[error("no forward node belongs to the module `{module}`")]
    UnknownModule {
        /// The name that was asked for.
        module: String,
    },
    /// A recompute would come after the update of the state that it reads.
    #[error(
        "the modules `{}` cannot be checkpointed: recomputing them in backward reads `{value}`, which the update \
         `{update}` has overwritten by then; leave them out, or let the update run after them",
        modules.join("`, `")
    )]
    Overwritten {
        /// The modules that cannot be checkpointed, each for itself or together.
        modules: Vec<String>,
        /// The state that is read too late.
        value: String,
        /// The node that overwrites it.
        update: String,
    },
}

/// Drops what is made inside a block and read in forward only there.
fn drop_inside(flat: &Flat, is_forward: &[bool], of_node: &[Option<usize>], block: usize, gaps: &mut [Gap]) {
    for n in (0..flat.n_nodes()).filter(|&n| of_node[n] == Some(block)) {
        for &v in flat.outputs.get(n) {
            let v = v as usize;
            let is_inside =
                |&reader: &u32| !is_forward[reader as usize] || of_node[reader as usize] == Some(block);
            if flat.readers.get(v).iter().all(is_inside) && !flat.lasting[v] {
                drop_at_the_turn(flat, is_forward, v, gaps, Gap::Share);
            }
        }
    }
}

/// The blocks in the order in which forward enters them.
struct Blocks {
    names: Vec<String>,
    of_node: Vec<Option<usize>>,
}

fn blocks(problem: &Problem) -> Blocks {
    let mut names: Vec<String> = Vec::new();
    let mut number = std::collections::HashMap::new();
    let of_node = problem
        .nodes
        .iter()
        .map(|node| {
            let name = block_name(node.module.as_deref()?).filter(|_| node.phase == Phase::Forward)?;
            Some(*number.entry(name.to_string()).or_insert_with(|| {
                names.push(name.to_string());
                names.len() - 1
            }))
        })
        .collect();
    Blocks { names, of_node }
}

/// `layer3.12.conv2` is in the block `layer3.12`; a path without a number is in none.
fn block_name(module: &str) -> Option<&str> {
    let mut end = 0;
    for part in module.split('.') {
        end += part.len();
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            return Some(&module[..end]);
        }
        end += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::block_name;

    #[test]
    fn a_block_ends_with_the_first_number_of_the_path() {
        assert_eq!(block_name("layer3.12.conv2"), Some("layer3.12"));
        assert_eq!(block_name("encoder.layers.0"), Some("encoder.layers.0"));
        assert_eq!(block_name("0.1"), Some("0"));
        assert_eq!(block_name("layer3"), None);
        assert_eq!(block_name(""), None);
    }
}
