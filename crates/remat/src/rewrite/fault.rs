//! What can be wrong with a schedule: faults that name ids, and the sentence for each.

use crate::graph::{Names, Tell, tells};
use crate::ids::{NodeId, SlotId, ValueId};
use std::fmt;

/// The beginning of a sentence about a step, or about what is there before all steps.
fn when(at: Option<usize>) -> String {
    at.map_or_else(String::new, |at| format!("step {at}: "))
}

/// One way in which a schedule does not compute what the original graph computes. `at` is the number of the step.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The sentences below say what the variants and their fields mean.
pub enum ScheduleFault {
    OtherSources,
    NoSuchNode { at: usize, node: NodeId },
    NoSuchOrigin { at: usize, node: NodeId, origin: NodeId },
    RunsTwice { at: usize, node: NodeId },
    OtherOp { at: usize, node: NodeId, origin: NodeId },
    OtherNumberOfInputs { at: usize, node: NodeId, found: usize, expected: usize },
    OtherNumberOfOutputs { at: usize, node: NodeId, found: usize, expected: usize },
    NotLive { at: usize, node: NodeId, value: ValueId },
    StandsForOther { at: usize, node: NodeId, value: ValueId, stands_for: ValueId, expected: ValueId },
    NoSuchValue { at: usize, node: NodeId, value: ValueId },
    OtherProducer { at: usize, node: NodeId, value: ValueId },
    OtherType { at: usize, node: NodeId, value: ValueId, original: ValueId },
    MadeAgain { at: usize, node: NodeId, value: ValueId },
    FreesNothing { at: usize, value: ValueId },
    NeverRuns { node: NodeId },
    UpdatesAgain { node: NodeId, n_runs: usize },
    StateLost { state: ValueId },
    OtherNumberOfResults { found: usize, expected: usize },
    ResultLost { value: ValueId },
    OtherResult { value: ValueId, stands_for: ValueId, expected: ValueId },
    NoSuchSlot { at: Option<usize>, slot: SlotId },
    SlotOfOther { at: Option<usize>, slot: SlotId, of: ValueId, stands_for: ValueId },
    SlotTaken { at: Option<usize>, slot: SlotId },
    SlotEmpty { at: usize, slot: SlotId },
    CopiesDead { at: usize, value: ValueId },
    CopyOutOfRange { at: usize, value: ValueId },
    CopyOfOtherType { at: usize, value: ValueId, original: ValueId },
    CopyOfOther { at: usize, slot: SlotId, value: ValueId, stands_for: ValueId },
    CopiedAgain { at: usize, value: ValueId },
    StaysStored { at: usize, node: NodeId, slot: SlotId },
    CarriesNoState { value: ValueId },
    CarriedElsewhere { state: ValueId },
}

tells!(ScheduleFault);

impl Tell for ScheduleFault {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result {
        use ScheduleFault as Fault;
        let (node_name, value_name) = (|id| names.node(id), |id| names.value(id));
        match *self {
            Fault::OtherSources => f.write_str("the sources are not those of the graph"),
            Fault::NoSuchNode { at, node } => write!(f, "step {at}: there is no node {node}"),
            Fault::NoSuchOrigin { at, node, origin } => {
                write!(f, "step {at}: {node} repeats {origin}, which is not a node of the graph")
            }
            Fault::RunsTwice { at, node } => {
                write!(f, "step {at}: {} has run already; a recompute is a node of its own", node_name(node))
            }
            Fault::OtherOp { at, node, origin } => {
                write!(f, "step {at}: {node} has another op than {}", node_name(origin))
            }
            Fault::OtherNumberOfInputs { at, node, found, expected } => {
                write!(f, "step {at}: {} reads {found} values instead of {expected}", node_name(node))
            }
            Fault::OtherNumberOfOutputs { at, node, found, expected } => {
                write!(f, "step {at}: {} makes {found} values instead of {expected}", node_name(node))
            }
            Fault::NotLive { at, node, value } => {
                write!(f, "step {at}: {} reads {}, which is not live", node_name(node), value_name(value))
            }
            Fault::StandsForOther { at, node, value, stands_for, expected } => {
                let (node, expected) = (node_name(node), value_name(expected));
                write!(
                    f,
                    "step {at}: {node} reads {value}, which stands for {stands_for} instead of {expected}"
                )
            }
            Fault::NoSuchValue { at, node, value } => {
                write!(f, "step {at}: {} makes {value}, which is out of range", node_name(node))
            }
            Fault::OtherProducer { at, node, value } => {
                write!(f, "step {at}: {} makes {value}, which records another producer", node_name(node))
            }
            Fault::OtherType { at, node, value, original } => {
                let (node, original) = (node_name(node), value_name(original));
                write!(f, "step {at}: {node} makes {value} with another type or kind than {original}")
            }
            Fault::MadeAgain { at, node, value } => {
                write!(f, "step {at}: {} makes {value}, which is live already", node_name(node))
            }
            Fault::FreesNothing { at, value } => {
                write!(f, "step {at}: frees {}, which holds no storage now", value_name(value))
            }
            Fault::NeverRuns { node } => write!(f, "{} never runs", node_name(node)),
            Fault::UpdatesAgain { node, n_runs } => {
                write!(f, "{} is an update and runs {n_runs} times", node_name(node))
            }
            Fault::StateLost { state } => write!(f, "the state {} is lost", value_name(state)),
            Fault::OtherNumberOfResults { found, expected } => {
                write!(f, "there are {found} outputs instead of {expected}")
            }
            Fault::ResultLost { value } => write!(f, "output {value} is not live at the end"),
            Fault::OtherResult { value, stands_for, expected } => {
                write!(f, "output {value} stands for {stands_for} instead of {}", value_name(expected))
            }
            Fault::NoSuchSlot { at, slot } => write!(f, "{}there is no slot {slot}", when(at)),
            Fault::SlotOfOther { at, slot, of, stands_for } => {
                let (of, stands_for) = (value_name(of), value_name(stands_for));
                write!(f, "{}slot {slot} is for {of}, and {stands_for} is copied there", when(at))
            }
            Fault::SlotTaken { at, slot } => write!(f, "{}slot {slot} was used already", when(at)),
            Fault::SlotEmpty { at, slot } => {
                write!(f, "step {at}: reads or discards slot {slot}, which holds nothing now")
            }
            Fault::CopiesDead { at, value } => {
                write!(f, "step {at}: copies {}, which holds no storage now", value_name(value))
            }
            Fault::CopyOutOfRange { at, value } => {
                write!(f, "step {at}: copies into {value}, which is out of range")
            }
            Fault::CopyOfOtherType { at, value, original } => {
                let original = value_name(original);
                write!(f, "step {at}: copies into {value} with another type or kind than {original}")
            }
            Fault::CopyOfOther { at, slot, value, stands_for } => {
                let stands_for = value_name(stands_for);
                write!(
                    f,
                    "step {at}: {value} is copied from slot {slot}, but is not noted as a copy of {stands_for}"
                )
            }
            Fault::CopiedAgain { at, value } => {
                write!(f, "step {at}: copies into {value}, which is no new value")
            }
            Fault::StaysStored { at, node, slot } => {
                write!(f, "step {at}: {} overwrites what slot {slot} still holds", node_name(node))
            }
            Fault::CarriesNoState { value } => {
                write!(f, "{} is carried in a store, but is no state", value_name(value))
            }
            Fault::CarriedElsewhere { state } => {
                write!(f, "the state {} ends the step in another store than it began", value_name(state))
            }
        }
    }
}
