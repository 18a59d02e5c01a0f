//! What can be wrong with a problem: faults that name ids, and the sentence for each.

use crate::ids::{ChannelId, NodeId, StoreId, ValueId};
use crate::names::{Names, Tell, tells};
use crate::spec::Way;
use std::fmt;

/// Where a fault is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The problem as a whole.
    Problem,
    /// A node.
    Node(NodeId),
    /// A store.
    Store(StoreId),
}

/// One fault of a problem and its place.
#[derive(Clone, PartialEq, Debug)]
pub struct ProblemFault {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub kind: ProblemFaultKind,
}

/// A list of ids in a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum List {
    /// `inputs`
    Input,
    /// `outputs`
    Output,
    /// `consumes`
    Consumed,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            List::Input => "input",
            List::Output => "output",
            List::Consumed => "consumed value",
        })
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// It is an input of the problem.
    Input,
    /// A node makes it.
    Node(NodeId),
}

/// What can be wrong with a problem.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // The sentences below say what the variants and their fields mean.
pub enum ProblemFaultKind {
    OutOfRange { list: List, value: ValueId, n_values: usize },
    Duplicate { list: List, value: ValueId },
    SecondProducer { value: ValueId, other: Origin },
    NoProducer { list: List, value: ValueId },
    OutOfOrder { value: ValueId, producer: NodeId },
    Cycle { path: Vec<NodeId> },
    BadCost { cost: f64 },
    CostOverflow,
    SizeOverflow,
    ConsumesOther { value: ValueId },
    ConsumesAndRecomputes,
    ConsumesOutput { value: ValueId },
    ConsumesTooEarly { value: ValueId, reader: NodeId },
    ConsumesTooMuch { consumed: u64, made: u64 },
    BadReuse { input: ValueId, output: ValueId },
    NoSuchChannel { way: Way, channel: ChannelId, n_channels: usize },
    BadTransferCost { way: Way, cost: f64 },
    CarriesNoPair { input: ValueId, output: ValueId },
    CarriesTwice { value: ValueId },
    CarriesOtherSize { input: ValueId, output: ValueId },
    More { n: usize },
}

tells!(ProblemFault);
tells!(ProblemFaultKind);

impl Tell for ProblemFault {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result {
        match self.place {
            Place::Problem => f.write_str("problem: ")?,
            Place::Node(node) => write!(f, "node {}: ", names.node(node))?,
            Place::Store(store) => write!(f, "store {}: ", names.store(store))?,
        }
        self.kind.tell(f, names)
    }
}

/// Nodes of a longer cycle are left out of the sentence.
const SHOWN_OF_CYCLE: usize = 8;

impl Tell for ProblemFaultKind {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result {
        use ProblemFaultKind as Kind;
        match *self {
            Kind::OutOfRange { list, value, n_values } => {
                write!(f, "{list} {value} is out of range (there are {n_values} values)")
            }
            Kind::Duplicate { list, value } => write!(f, "{list} {value} is listed twice"),
            Kind::SecondProducer { value, other } => {
                write!(f, "output {} already has a producer: ", names.value(value))?;
                match other {
                    Origin::Input => f.write_str("it is an input of the problem"),
                    Origin::Node(node) => write!(f, "node {}", names.node(node)),
                }
            }
            Kind::NoProducer { list, value } => {
                write!(f, "{list} {} has no producer and is not an input of the problem", names.value(value))
            }
            Kind::OutOfOrder { value, producer } => write!(
                f,
                "input {} is made by node {}, which does not come before it in the list",
                names.value(value),
                names.node(producer)
            ),
            Kind::Cycle { ref path } => {
                f.write_str("the nodes form a cycle: ")?;
                for (i, &node) in path.iter().take(SHOWN_OF_CYCLE).enumerate() {
                    let arrow = if i == 0 { "" } else { " -> " };
                    write!(f, "{arrow}{}", names.node(node))?;
                }
                let n_more = path.len().saturating_sub(SHOWN_OF_CYCLE);
                if n_more > 0 { write!(f, " -> ... ({n_more} more)") } else { Ok(()) }
            }
            Kind::BadCost { cost } => {
                write!(f, "the cost {cost} is not a finite number of at least zero")
            }
            Kind::CostOverflow => f.write_str("the sum of all costs is too large for a number"),
            Kind::SizeOverflow => f.write_str("the sizes add up to more than 2^63 bytes"),
            Kind::ConsumesOther { value } => {
                write!(f, "consumed value {} is not among the inputs", names.value(value))
            }
            Kind::ConsumesAndRecomputes => {
                f.write_str("it consumes a value, so it must run only once (\"recompute\": false)")
            }
            Kind::ConsumesOutput { value } => {
                write!(f, "consumed value {} is an output of the problem", names.value(value))
            }
            Kind::ConsumesTooEarly { value, reader } => write!(
                f,
                "consumed value {} is read by the later node {}",
                names.value(value),
                names.node(reader)
            ),
            Kind::ConsumesTooMuch { consumed, made } => {
                write!(f, "it consumes more bytes ({consumed}) than its outputs hold ({made})")
            }
            Kind::BadReuse { input, output } => {
                write!(f, "the reuse pair [{input}, {output}] is not an input and an output of the node")
            }
            Kind::NoSuchChannel { way, channel, n_channels } => {
                write!(f, "the channel {channel} of its copies {way} does not exist (there are {n_channels})")
            }
            Kind::BadTransferCost { way, cost } => {
                write!(f, "the cost {cost} of its copies {way} is not a finite number of at least zero")
            }
            Kind::CarriesNoPair { input, output } => {
                write!(
                    f,
                    "the pair [{input}, {output}] in carries is not an input and an output of the problem"
                )
            }
            Kind::CarriesTwice { value } => {
                write!(f, "value {} is in two pairs of carries", names.value(value))
            }
            Kind::CarriesOtherSize { input, output } => write!(
                f,
                "values {} and {} are a pair of carries, but differ in bytes",
                names.value(input),
                names.value(output)
            ),
            Kind::More { n } => write!(f, "there are {n} further faults"),
        }
    }
}
