//! The measured profile: every op is run alone on buffers of its own, after a warm-up, several times.
//!
//! Only one node's inputs, outputs and workspace are in memory at a time, so a step that does not fit can be measured
//! as long as each of its ops fits. Nodes with the same op and types are measured once: repeated layers cost nothing.

use crate::error::{Error, Result};
use crate::graph::{DType, Graph, Node, Type};
use crate::ids::{IdVec, NodeId};
use crate::op::{Alone, MicroBatch, Op, Run};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Repeated measurements of one op.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// Median seconds.
    pub median: f64,
    /// Half the distance between the quartiles: how far the typical run is from the median.
    pub spread: f64,
    /// How many runs were timed.
    pub n_runs: usize,
}

impl Sample {
    /// Summarises timings.
    pub fn of(mut seconds: Vec<f64>) -> Sample {
        seconds.sort_by(f64::total_cmp);
        let at = |share: f64| match seconds.len() {
            0 => 0.0,
            n => seconds[((n - 1) as f64 * share).round() as usize],
        };
        Sample { median: at(0.5), spread: (at(0.75) - at(0.25)) / 2.0, n_runs: seconds.len() }
    }
}

/// Measurements of a whole step.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Per node; views are zero.
    pub samples: IdVec<NodeId, Sample>,
}

impl Measured {
    /// Median seconds per node.
    pub fn seconds(&self) -> IdVec<NodeId, f64> {
        self.samples.iter().map(|s| s.median).collect()
    }
}

/// Shortest and longest time spent on one op, and the fewest runs that make a median.
const MIN_TIME: Duration = Duration::from_millis(2);
const MAX_TIME: Duration = Duration::from_millis(300);
const MIN_RUNS: usize = 3;
const MAX_RUNS: usize = 25;

/// Measures every node with `n_threads` threads. `progress` is told how many of how many nodes are done.
pub fn measure(graph: &Graph, n_threads: usize, mut progress: impl FnMut(usize, usize)) -> Result<Measured> {
    let pool = crate::threads::thread_pool(n_threads)?;
    let mut known: HashMap<(String, Vec<Type>), Sample> = HashMap::new();
    let mut samples = IdVec::new();
    for (id, node) in graph.nodes.enumerate() {
        progress(samples.len(), graph.nodes.len());
        if node.op.def().is_view() {
            samples.push(Sample::of(Vec::new()));
            continue;
        }
        let types: Vec<Type> = graph.input_types(node).into_iter().cloned().collect();
        let key = (timing_key(graph, node), types.clone());
        let sample = match known.get(&key) {
            Some(&sample) => sample,
            None => {
                let alone = Alone::new(&node.op, &types).map_err(|message| Error::Bug {
                    stage: "profile",
                    faults: vec![format!("{id}: {message}")],
                })?;
                let sample = pool.install(|| time(alone, &types));
                known.insert(key, sample);
                sample
            }
        };
        samples.push(sample);
    }
    progress(samples.len(), graph.nodes.len());
    Ok(Measured { samples })
}

/// What a node's time depends on besides its types: its op, or the ops that it joins. The stream of a random op changes its
/// numbers, not its time.
fn timing_key(graph: &Graph, node: &Node) -> String {
    let alone = |op: &Op| {
        let mut attributes = op.attributes();
        attributes.as_object_mut().and_then(|fields| fields.remove("stream"));
        format!("{} {attributes}", op.name())
    };
    let (inputs, outputs) = (graph.input_types(node), graph.output_types(node));
    let parts = node.op.def().parts(&inputs, &outputs);
    if parts.is_empty() {
        return alone(&node.op);
    }
    parts.iter().map(|(op, types)| format!("{} {types:?};", alone(op))).collect()
}

fn time(mut alone: Alone, types: &[Type]) -> Sample {
    for (i, _) in types.iter().enumerate().filter(|(_, ty)| ty.dtype() == DType::F32) {
        alone.fill_ordinary(i);
    }
    let run = Run { seed: 0, step: 1, learning_rate: 1e-3, micro: MicroBatch::ONLY };
    alone.run(&run);
    let mut seconds = Vec::new();
    let begin = Instant::now();
    while seconds.len() < MIN_RUNS || (begin.elapsed() < MIN_TIME && seconds.len() < MAX_RUNS) {
        let start = Instant::now();
        alone.run(&run);
        seconds.push(start.elapsed().as_secs_f64());
        if begin.elapsed() > MAX_TIME && seconds.len() >= MIN_RUNS {
            break;
        }
    }
    Sample::of(seconds)
}
