//! What a schedule computes when every value has memory of its own: the meaning of a schedule, without addresses.

use crate::exec::{as_floats_mut, init};
use crate::graph::{DType, Graph, Init, Storage};
use crate::ids::{SlotId, ValueId};
use crate::op::{Buffer, Fill, Io, Owned};
use crate::rewrite::{Schedule, Step};
use crate::testing::{Numbers, RUN};
use std::collections::{BTreeMap, HashMap};

/// The bytes of all results and of all state at the end of one step, or `None` if something is read or asked for that is
/// not there.
pub(super) fn results(original: &Graph, schedule: &Schedule) -> Option<Vec<Vec<u8>>> {
    let graph = &schedule.graph;
    let storage = Storage::compute(graph);
    let mut memory: BTreeMap<ValueId, Owned> = sources(graph);
    let mut stored: HashMap<SlotId, Owned> = HashMap::new();
    for carried in &schedule.carried {
        stored.insert(carried.begin, memory.remove(&carried.source)?);
    }
    for step in &schedule.steps {
        match *step {
            Step::Free(value) => {
                memory.remove(&value)?;
                memory.retain(|&v, _| storage.root[v] != value);
            }
            Step::Run(node) => run(graph, node, &mut memory)?,
            Step::Out(value, slot) => {
                if stored.insert(slot, memory.get(&value)?.clone()).is_some() {
                    return None;
                }
            }
            Step::In(slot, value) => {
                if memory.insert(value, stored.get(&slot)?.clone()).is_some() {
                    return None;
                }
            }
            Step::Discard(slot) => drop(stored.remove(&slot)?),
        }
    }
    let replaced: HashMap<ValueId, ValueId> = original.updates().into_iter().collect();
    let states = original.sources.iter().map(|s| s.value).filter(|&v| original.values[v].kind.is_state());
    // A result may be a copy; its place in the list says what it stands for.
    let results = graph.outputs.iter().map(|value| memory.get(value));
    let states = states.map(|state| {
        let last = replaced.get(&state).copied().unwrap_or(state);
        let mut carried = schedule.carried.iter().filter(|carried| carried.source == state);
        match carried.next() {
            Some(carried) => stored.get(&carried.end),
            // Any copy of it will do.
            None => memory.iter().find(|(value, _)| schedule.original(**value) == last).map(|found| found.1),
        }
    });
    results.chain(states).map(|owned| owned.map(|owned| owned.bytes().to_vec())).collect()
}

fn run(graph: &Graph, id: crate::ids::NodeId, memory: &mut BTreeMap<ValueId, Owned>) -> Option<()> {
    let node = graph.nodes.get(id)?;
    let def = node.op.def();
    if !node.inputs.iter().all(|v| memory.contains_key(v)) {
        return None;
    }
    let types = graph.input_types(node);
    if def.is_view() {
        let copy = memory.get(&node.inputs[0])?.clone();
        memory.insert(node.outputs[0], copy);
        return Some(());
    }
    let mut inputs: Vec<Owned> = node.inputs.iter().map(|v| memory[v].clone()).collect();
    let mut outputs: Vec<Owned> = node.outputs.iter().map(|&v| Owned::of(&graph.values[v].ty)).collect();
    let buffers = |owned: &mut Vec<Owned>, values: &[ValueId]| -> Vec<(*mut u8, ValueId)> {
        owned.iter_mut().map(Owned::address).zip(values.iter().copied()).collect()
    };
    let buffer = |(ptr, v): (*mut u8, ValueId)| Buffer { ptr, ty: &graph.values[v].ty, shared: false };
    let x: Vec<Buffer<'_>> = buffers(&mut inputs, &node.inputs).into_iter().map(buffer).collect();
    let y: Vec<Buffer<'_>> = buffers(&mut outputs, &node.outputs).into_iter().map(buffer).collect();
    let workspace_bytes = graph.workspace_bytes(id).0 as usize;
    let mut workspace = Owned::zeroed(workspace_bytes);
    // SAFETY: every buffer is memory of its own that lives until the kernel has run.
    let mut io = unsafe { Io::new(&x, &y, (workspace.address(), workspace_bytes), &RUN) };
    def.run(&mut io);
    for (input, _) in def.consumes(&types) {
        memory.remove(&node.inputs[input]);
    }
    memory.extend(node.outputs.iter().copied().zip(outputs));
    Some(())
}

/// Sources, filled.
fn sources(graph: &Graph) -> BTreeMap<ValueId, Owned> {
    let mut numbers = Numbers(17);
    let mut fill = |source: &crate::graph::Source| {
        let ty = &graph.values[source.value].ty;
        let mut owned = Owned::of(ty);
        match source.init {
            Init::Batch => {
                let values = numbers.fill(ty, Fill::Normal);
                as_floats_mut(owned.bytes_mut()).iter_mut().zip(values).for_each(|(to, x)| *to = x as f32);
            }
            Init::Indices(limit) | Init::Labels(limit) => {
                debug_assert_eq!(ty.dtype(), DType::I32);
                let values = numbers.fill(ty, Fill::Below(limit));
                let bytes = owned.bytes_mut().chunks_exact_mut(4).zip(values);
                bytes.for_each(|(to, x)| to.copy_from_slice(&(x as i32).to_ne_bytes()));
            }
            _ => init::fill(source, 1, as_floats_mut(owned.bytes_mut())),
        }
        (source.value, owned)
    };
    graph.sources.iter().map(&mut fill).collect()
}
