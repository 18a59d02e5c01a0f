//! Small changes to a graph, a step, a schedule or a layout, one per line, so that a case can show what a checker finds.
//!
//! | graph | |
//! |---|---|
//! | `node N reads V…`, `node N makes V…` | its inputs, its outputs |
//! | `node N of M` | the node it repeats |
//! | `node N op NAME JSON` | another op, with its attributes |
//! | `node N odd makes=TYPES consumes=I:O,… update view` | an op that says so of itself |
//! | `node N swaps M` | two nodes change places |
//! | `value V type T`, `value V producer N I` | |
//! | `source I is V`, `source I named NAME`, `no source I` | |
//! | `outputs V…` | |
//!
//! A step has the lines of `roles`, too: `loss V`, `norm V`, `accuracy V`, `prediction V`, `gradient P V…` and
//! `learning_rate X`. A schedule: `drop I`, `swap I J`, `insert I run N`, `insert I free V`, `insert I out V S`,
//! `insert I in S V`, `insert I discard S`, `slot S of V`, `slot S in STORE`, `copy V of W`, `carried I source V`,
//! `carried I begin S`, `carried I end S`. A layout: `offset V X`, `workspace N X`, `shared N I:O…` (`-` for nothing), `arena X`,
//! `used X`, `placed V X`, `place S X`, `store I X`, `cut TABLE`.

use remat::graph::{Effect, Graph, NaiveIo, Type};
use remat::ids::{Id, IdVec, NodeId, SlotId, ValueId};
use remat::layout::Layout;
use remat::op::{Cost, Example, Io, Op, OpDef};
use remat::optimizer::Optimizer;
use remat::rewrite::{Schedule, Step};
use remat::step::{Roles, TrainingStep};
use remat_plan::{Bytes, StoreId};

fn node(word: &str) -> NodeId {
    NodeId::new(word.strip_prefix('n').expect("a node such as n3").parse().expect("a number"))
}

fn value(word: &str) -> ValueId {
    ValueId::new(word.strip_prefix('%').expect("a value such as %3").parse().expect("a number"))
}

fn slot(word: &str) -> SlotId {
    SlotId::new(word.strip_prefix('s').expect("a slot such as s3").parse().expect("a number"))
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(word: &str) -> T {
    word.parse().expect("a number")
}

fn place(word: &str) -> Option<u64> {
    (word != "-").then(|| number(word))
}

fn pair(word: &str) -> (usize, usize) {
    let (input, output) = word.split_once(':').expect("a pair such as 0:1");
    (number(input), number(output))
}

/// Changes a graph.
pub(crate) fn graph(graph: &mut Graph, words: &[&str]) {
    match words {
        ["node", n, "reads", values @ ..] => {
            graph.nodes[node(n)].inputs = values.iter().map(|v| value(v)).collect();
        }
        ["node", n, "makes", values @ ..] => {
            graph.nodes[node(n)].outputs = values.iter().map(|v| value(v)).collect();
        }
        ["node", n, "of", m] => graph.nodes[node(n)].origin = Some(node(m)),
        ["node", n, "op", name, attributes @ ..] => graph.nodes[node(n)].op = op(name, attributes),
        ["node", n, "odd", words @ ..] => graph.nodes[node(n)].op = Odd::of(words).into(),
        ["node", n, "swaps", m] => {
            let (n, m) = (node(n), node(m));
            let moved = graph.nodes[n].clone();
            graph.nodes[n] = std::mem::replace(&mut graph.nodes[m], moved);
            for id in [n, m] {
                for (position, v) in graph.nodes[id].outputs.clone().into_iter().enumerate() {
                    graph.values[v].producer = Some((id, position));
                }
            }
        }
        ["value", v, "type", ty] => graph.values[value(v)].ty = ty.parse().expect("a type"),
        ["value", v, "producer", n, position] => {
            graph.values[value(v)].producer = Some((node(n), number(position)));
        }
        ["source", i, "is", v] => graph.sources[number::<usize>(i)].value = value(v),
        ["source", i, "named", name] => graph.sources[number::<usize>(i)].name = (*name).to_owned(),
        ["no", "source", i] => {
            graph.sources.remove(number(i));
        }
        ["outputs", values @ ..] => graph.outputs = values.iter().map(|v| value(v)).collect(),
        other => panic!("unknown edit {other:?}"),
    }
}

/// An op of this crate, as the text form of a graph has it.
fn op(name: &str, attributes: &[&str]) -> Op {
    let attributes = serde_json::from_str(&attributes.join(" ")).expect("attributes in JSON");
    remat::op::read(name, attributes).expect("an op of this crate")
}

/// Changes a step.
pub(crate) fn step(step: &mut TrainingStep, words: &[&str]) {
    if !role(&mut step.roles, words) {
        graph(&mut step.graph, words);
    }
}

/// What the values of a graph are for.
pub(crate) fn roles(graph: &Graph, text: &str) -> Roles {
    let mut roles = Roles::of_loss(graph.outputs[0]);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(role(&mut roles, &words), "unknown role {line}");
    }
    roles
}

/// False for a line that is not about roles.
fn role(roles: &mut Roles, words: &[&str]) -> bool {
    match words {
        ["loss", v] => roles.loss = value(v),
        ["norm", v] => roles.gradient_norm = Some(value(v)),
        ["accuracy", v] => roles.accuracy = Some(value(v)),
        ["prediction", v] => roles.prediction = Some(value(v)),
        ["gradient", p, v] => {
            roles.gradients.retain(|pair| pair.0 != value(p));
            roles.gradients.push((value(p), value(v)));
        }
        ["gradient", p] => roles.gradients.retain(|pair| pair.0 != value(p)),
        ["learning_rate", x] => roles.optimizer = Some(Optimizer::sgd(number(x))),
        _ => return false,
    }
    true
}

/// Changes a schedule.
pub(crate) fn schedule(schedule: &mut Schedule, words: &[&str]) {
    match words {
        ["drop", i] => {
            schedule.steps.remove(number(i));
        }
        ["swap", i, j] => schedule.steps.swap(number(i), number(j)),
        ["insert", i, "run", n] => schedule.steps.insert(number(i), Step::Run(node(n))),
        ["insert", i, "free", v] => schedule.steps.insert(number(i), Step::Free(value(v))),
        ["insert", i, "out", v, s] => schedule.steps.insert(number(i), Step::Out(value(v), slot(s))),
        ["insert", i, "in", s, v] => schedule.steps.insert(number(i), Step::In(slot(s), value(v))),
        ["insert", i, "discard", s] => schedule.steps.insert(number(i), Step::Discard(slot(s))),
        ["slot", s, "of", v] => schedule.slots[slot(s)].of = value(v),
        ["slot", s, "in", store] => schedule.slots[slot(s)].store = StoreId::new(number(store)),
        ["copy", v, "of", w] => drop(schedule.copy_of.insert(value(v), value(w))),
        ["carried", i, "source", v] => schedule.carried[number::<usize>(i)].source = value(v),
        ["carried", i, "begin", s] => schedule.carried[number::<usize>(i)].begin = slot(s),
        ["carried", i, "end", s] => schedule.carried[number::<usize>(i)].end = slot(s),
        words => graph(&mut schedule.graph, words),
    }
}

/// Changes a layout, or the schedule that it is for.
pub(crate) fn layout(
    of: &mut Schedule,
    layout: &mut Layout,
    placed: &mut Vec<(ValueId, u64)>,
    words: &[&str],
) {
    match words {
        ["offset", v, x] => layout.offset[value(v)] = place(x),
        ["workspace", n, x] => layout.workspace[node(n)] = place(x),
        ["shared", n, "-"] => layout.shared[node(n)].clear(),
        ["shared", n, pairs @ ..] => {
            layout.shared[node(n)] = pairs.iter().map(|word| pair(word)).collect();
        }
        ["arena", x] => layout.arena = Bytes(number(x)),
        ["used", x] => layout.used = Bytes(number(x)),
        ["placed", v, x] => placed.push((value(v), number(x))),
        ["cut", "offset"] => layout.offset = shorter(&layout.offset),
        ["cut", "workspace"] => layout.workspace = shorter(&layout.workspace),
        ["cut", "shared"] => layout.shared = shorter(&layout.shared),
        ["cut", "slots"] => layout.slots = shorter(&layout.slots),
        ["place", s, x] => layout.slots[slot(s)] = number(x),
        ["store", i, x] => layout.stores[number::<usize>(i)] = Bytes(number(x)),
        words => schedule(of, words),
    }
}

fn shorter<I: Id, T: Clone>(table: &IdVec<I, T>) -> IdVec<I, T> {
    table.iter().take(table.len() - 1).cloned().collect()
}

/// An op that can be wrong about itself in every way.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
struct Odd {
    makes: Vec<String>,
    consumes: Vec<(usize, usize)>,
    is_update: bool,
    is_view: bool,
}

impl Odd {
    fn of(words: &[&str]) -> Odd {
        let mut odd = Odd { makes: Vec::new(), consumes: Vec::new(), is_update: false, is_view: false };
        for word in words {
            match word.split_once('=') {
                Some(("makes", types)) => odd.makes = types.split(';').map(str::to_owned).collect(),
                Some(("consumes", pairs)) => odd.consumes = pairs.split(',').map(pair).collect(),
                None if *word == "update" => odd.is_update = true,
                None if *word == "view" => odd.is_view = true,
                _ => panic!("unknown word {word}"),
            }
        }
        odd
    }
}

impl OpDef for Odd {
    fn name() -> &'static str {
        "odd"
    }

    fn infer(&self, _x: &[&Type]) -> Result<Vec<Type>, String> {
        self.makes.iter().map(|ty| ty.parse()).collect()
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn effect(&self) -> Effect {
        if self.is_update { Effect::Update } else { Effect::Pure }
    }

    fn is_view(&self) -> bool {
        self.is_view
    }

    fn consumes(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        self.consumes.clone()
    }

    fn run(&self, _io: &mut Io<'_>) {
        unreachable!("it is only checked");
    }

    fn naive(&self, _io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        unreachable!("it is only checked");
    }

    fn examples() -> Vec<Example> {
        Vec::new()
    }
}
