//! The analytic profile: seconds of a node from its flops and bytes and the machine's speeds.
//!
//! A kernel is limited by arithmetic or by memory, whichever takes longer (the roofline model), plus a fixed price
//! for calling it. Both limits are those that the kind of op was measured to reach; an op that was not measured
//! counts as fast as the machine. Nothing is run, so it serves for models that do not fit this machine.

use super::{Machine, Speed};
use crate::graph::{Graph, Type};
use crate::ids::{IdVec, NodeId};
use crate::op::Op;

/// A working set of this size fits the caches of an ordinary machine, and one of `FAR` does not; speeds pass from one
/// to the other in between.
const NEAR: f64 = (2 << 20) as f64;
const FAR: f64 = (64 << 20) as f64;

/// Seconds per node; views take none.
pub fn analytic(graph: &Graph, machine: &Machine) -> IdVec<NodeId, f64> {
    let seconds = |node: &crate::graph::Node| {
        if node.op.def().is_view() {
            return 0.0;
        }
        machine.seconds(&node.op, &graph.input_types(node), &graph.output_types(node)) + machine.overhead
    };
    graph.nodes.iter().map(seconds).collect()
}

impl Machine {
    /// Seconds of one op, without the price of the call.
    fn seconds(&self, op: &Op, x: &[&Type], y: &[&Type]) -> f64 {
        let cost = op.def().cost(x, y);
        let (flops, bytes) = (cost.flops as f64, cost.bytes as f64);
        let memory = bytes / self.bandwidth;
        let parts = op.def().parts(x, y);
        if !parts.is_empty() {
            // One pass over memory, while the parts work on what is in the nearest cache.
            let near = |(op, x): (&Op, Vec<&Type>)| match self.speeds.get(op.name()) {
                Some(&Speed::Bytes { near, .. }) => op.def().cost(&x, y).bytes as f64 / near,
                _ => 0.0,
            };
            return parts.into_iter().map(near).sum::<f64>().max(memory);
        }
        match self.speeds.get(op.name()) {
            Some(&Speed::Flops(rate)) => (flops / rate).max(memory),
            Some(&Speed::Bytes { near, far }) => {
                let distance = (libm::log(bytes / NEAR) / libm::log(FAR / NEAR)).clamp(0.0, 1.0);
                bytes / (near * libm::pow(far / near, distance))
            }
            None => (flops / self.flops).max(memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::linear::Linear;
    use crate::op::relu::Relu;
    use std::collections::BTreeMap;

    fn machine(speeds: &[(&str, Speed)]) -> Machine {
        let speeds: BTreeMap<_, _> = speeds.iter().map(|&(op, speed)| (op.to_owned(), speed)).collect();
        Machine { speeds, ..Machine::nominal(1) }
    }

    fn relu_seconds(machine: &Machine, elements: usize) -> f64 {
        let ty = Type::f32(&[elements]).expect("a shape that can be addressed");
        machine.seconds(&Relu {}.into(), &[&ty], &[&ty])
    }

    #[test]
    fn a_speed_is_that_of_the_cache_for_small_tensors_and_of_memory_for_large_ones() {
        let machine = machine(&[("relu", Speed::Bytes { near: 1e11, far: 1e10 })]);
        let rate = |elements: usize| 8.0 * elements as f64 / relu_seconds(&machine, elements);
        assert!((rate(1000) / 1e11 - 1.0).abs() < 1e-9);
        assert!((rate(100 << 20) / 1e10 - 1.0).abs() < 1e-9);
        let between = rate(2 << 20);
        assert!(between < 0.99e11 && between > 1.01e10, "{between}");
    }

    #[test]
    fn products_take_their_measured_rate_and_never_less_than_their_memory() {
        let x = Type::f32(&[64, 512]).expect("small");
        let (wide, thin) = (Type::f32(&[512, 512]).expect("small"), Type::f32(&[1, 512]).expect("small"));
        let seconds = |machine: &Machine, weight: &Type| {
            let y = Type::f32(&[64, weight.shape()[0]]).expect("small");
            machine.seconds(&Linear {}.into(), &[&x, weight], &[&y])
        };
        let slow = machine(&[("linear", Speed::Flops(1e9))]);
        assert_eq!(seconds(&slow, &wide), 2.0 * (64 * 512 * 512) as f64 / 1e9);
        let fast = machine(&[("linear", Speed::Flops(1e15))]);
        assert_eq!(seconds(&fast, &thin), (x.bytes() + thin.bytes() + 4 * 64) as f64 / fast.bandwidth);
    }
}
