//! What can be wrong with a layout: faults that name ids and addresses, and the sentence for each.

use crate::graph::{Names, Tell, tells};
use crate::ids::{NodeId, SlotId, ValueId};
use std::fmt;

/// What lies somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Occupant {
    /// A value with storage of its own.
    Value(ValueId),
    /// The scratch memory of a node.
    Workspace(NodeId),
    /// A slot of a store.
    Slot(SlotId),
}

/// A table of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// `offset`
    Offset,
    /// `workspace`
    Workspace,
    /// `shared`
    Shared,
    /// `slots`
    Slots,
}

/// The beginning of a sentence about a step, or about what is there before all steps.
fn when(at: Option<usize>) -> String {
    at.map_or_else(String::new, |at| format!("step {at}: "))
}

/// One way in which a layout is wrong. `at` is the number of the step.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The sentences below say what the variants and their fields mean.
pub enum LayoutFault {
    ShortTable { table: Table, found: usize, expected: usize },
    NoSuchNode { at: usize, node: NodeId },
    NoSuchValue { at: Option<usize>, value: ValueId },
    Malformed { at: usize, node: NodeId },
    NoPlace { value: ValueId },
    Unaligned { occupant: Occupant, start: u64 },
    Outside { occupant: Occupant, start: u64, bytes: u64, arena: u64 },
    Overlap { occupant: Occupant, range: (u64, u64), other: Occupant, other_range: (u64, u64) },
    MadeAgain { at: usize, node: NodeId, value: ValueId },
    FreedWhenDead { at: usize, value: ValueId },
    ReadsDead { at: usize, node: NodeId, value: ValueId },
    ViewApart { at: usize, node: NodeId, value: ValueId },
    NoSuchPair { at: usize, node: NodeId, input: usize, output: usize },
    SharedApart { at: usize, node: NodeId, input: ValueId, output: ValueId },
    MayNotOverwrite { at: usize, node: NodeId, value: ValueId },
    TakesOverDead { at: usize, node: NodeId, value: ValueId },
    KeepsOldState { at: usize, node: NodeId, value: ValueId },
    OverwrittenWhenLive { node: NodeId, value: ValueId },
    NoWorkspace { at: usize, node: NodeId },
    StateLost { state: ValueId },
    StateMoved { state: ValueId, from: u64, to: u64 },
    Displaced { value: ValueId, expected: u64, found: u64 },
    WrongUse { claimed: u64, measured: u64 },
    ArenaTooLarge { arena: u64, highest: u64 },
    NoSuchSlot { at: Option<usize>, slot: SlotId },
    NoSuchStore { slot: SlotId },
    CopiesDead { at: usize, value: ValueId },
    CopiedAgain { at: usize, value: ValueId },
    SlotTaken { at: Option<usize>, slot: SlotId },
    SlotEmpty { at: usize, slot: SlotId },
    OtherSize { at: usize, slot: SlotId, value: ValueId },
    StateMovedInStore { state: ValueId, from: SlotId, to: SlotId },
    StoreTooLarge { store: usize, size: u64, highest: u64 },
}

tells!(LayoutFault);

impl Tell for LayoutFault {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result {
        use LayoutFault as Fault;
        let (node_name, value_name) = (|id| names.node(id), |id| names.value(id));
        let occupant_name = |occupant| match occupant {
            Occupant::Value(value) => value_name(value).to_string(),
            Occupant::Workspace(node) => format!("the workspace of {}", node_name(node)),
            Occupant::Slot(slot) => format!("slot {slot}"),
        };
        let whole = |occupant| if matches!(occupant, Occupant::Slot(_)) { "store" } else { "arena" };
        match *self {
            Fault::ShortTable { table, found, expected } => {
                let table = match table {
                    Table::Offset => "offset",
                    Table::Workspace => "workspace",
                    Table::Shared => "shared",
                    Table::Slots => "slots",
                };
                write!(f, "the table `{table}` has {found} entries instead of {expected}")
            }
            Fault::NoSuchNode { at, node } => write!(f, "step {at}: there is no node {node}"),
            Fault::NoSuchValue { at: Some(at), value } => write!(f, "step {at}: there is no value {value}"),
            Fault::NoSuchValue { at: None, value } => write!(f, "there is no value {value}"),
            Fault::Malformed { at, node } => {
                write!(f, "step {at}: {} does not have the inputs and outputs of its op", node_name(node))
            }
            Fault::NoPlace { value } => write!(f, "{} has no place", value_name(value)),
            Fault::Unaligned { occupant, start } => {
                write!(f, "{} at {start} is not aligned", occupant_name(occupant))
            }
            Fault::Outside { occupant, start, bytes, arena } => {
                let (occupant, whole) = (occupant_name(occupant), whole(occupant));
                write!(
                    f,
                    "{occupant} at {start} with {bytes} bytes ends outside of the {whole} of {arena} bytes"
                )
            }
            Fault::Overlap { occupant, range, other, other_range } => {
                let (occupant, other) = (occupant_name(occupant), occupant_name(other));
                write!(f, "{occupant} at {}..{} overlaps ", range.0, range.1)?;
                write!(f, "{other} at {}..{}", other_range.0, other_range.1)
            }
            Fault::MadeAgain { at, node, value } => {
                let (node, value) = (node_name(node), value_name(value));
                write!(f, "step {at}: {node} makes {value}, which is live already")
            }
            Fault::FreedWhenDead { at, value } => {
                write!(f, "step {at}: {} is freed, but holds no storage now", value_name(value))
            }
            Fault::ReadsDead { at, node, value } => {
                write!(f, "step {at}: {} reads {}, which is not live", node_name(node), value_name(value))
            }
            Fault::ViewApart { at, node, value } => {
                let (node, value) = (node_name(node), value_name(value));
                write!(f, "step {at}: the view {node} does not lie on {value}, which it views")
            }
            Fault::NoSuchPair { at, node, input, output } => {
                let node = node_name(node);
                write!(
                    f,
                    "step {at}: {node} shares input {input} and output {output}, but does not have both"
                )
            }
            Fault::SharedApart { at, node, input, output } => {
                let (node, input, output) = (node_name(node), value_name(input), value_name(output));
                write!(f, "step {at}: {node} shares {input} and {output}, which are not the same bytes")
            }
            Fault::MayNotOverwrite { at, node, value } => {
                write!(f, "step {at}: {} may not overwrite {}", node_name(node), value_name(value))
            }
            Fault::TakesOverDead { at, node, value } => {
                let (node, value) = (node_name(node), value_name(value));
                write!(f, "step {at}: {node} takes {value} over, which holds no storage now")
            }
            Fault::KeepsOldState { at, node, value } => {
                let (node, value) = (node_name(node), value_name(value));
                write!(f, "step {at}: {node} does not overwrite the state {value}")
            }
            Fault::OverwrittenWhenLive { node, value } => {
                let (node, value) = (node_name(node), value_name(value));
                write!(f, "{value} is overwritten by {node}, but not freed before anything else happens")
            }
            Fault::NoWorkspace { at, node } => {
                write!(f, "step {at}: {} has no workspace", node_name(node))
            }
            Fault::StateLost { state } => write!(f, "the state {} is lost", value_name(state)),
            Fault::StateMoved { state, from, to } => {
                write!(f, "the state {} begins the step at {from} and ends it at {to}", value_name(state))
            }
            Fault::Displaced { value, expected, found } => {
                write!(f, "{} lies at {found}, but belongs at {expected}", value_name(value))
            }
            Fault::WrongUse { claimed, measured } => {
                write!(f, "the layout claims {claimed} bytes in use, but there are {measured}")
            }
            Fault::ArenaTooLarge { arena, highest } => {
                write!(f, "the arena has {arena} bytes, but nothing lies above {highest}")
            }
            Fault::NoSuchSlot { at, slot } => write!(f, "{}there is no slot {slot}", when(at)),
            Fault::NoSuchStore { slot } => write!(f, "slot {slot} is in a store that does not exist"),
            Fault::CopiesDead { at, value } => {
                write!(f, "step {at}: {} is copied, but holds no storage now", value_name(value))
            }
            Fault::CopiedAgain { at, value } => {
                write!(f, "step {at}: {} is copied into, but is live already", value_name(value))
            }
            Fault::SlotTaken { at, slot } => write!(f, "{}slot {slot} holds something already", when(at)),
            Fault::SlotEmpty { at, slot } => write!(f, "step {at}: slot {slot} holds nothing now"),
            Fault::OtherSize { at, slot, value } => {
                write!(f, "step {at}: slot {slot} and {} differ in bytes", value_name(value))
            }
            Fault::StateMovedInStore { state, from, to } => {
                let state = value_name(state);
                write!(
                    f,
                    "the state {state} begins the step in slot {from} and ends it elsewhere, in slot {to}"
                )
            }
            Fault::StoreTooLarge { store, size, highest } => {
                write!(f, "store {store} has {size} bytes, but nothing lies above {highest}")
            }
        }
    }
}
