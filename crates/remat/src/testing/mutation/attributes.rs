//! Ops with another attribute: another number, flag, random stream or step of a program.

use crate::op::fused::{Fused, Operand};
use crate::op::{self, Op};

/// The same op with another number or flag in one of its attributes.
pub(super) fn other_attributes(op: &Op) -> Vec<Op> {
    let attributes = op.attributes();
    let fields = attributes.as_object().into_iter().flatten();
    let changed = |value: &serde_json::Value| match value {
        serde_json::Value::Bool(flag) => Some(serde_json::json!(!flag)),
        serde_json::Value::Number(n) if n.is_u64() => n.as_u64().map(|n| serde_json::json!(n + 1)),
        serde_json::Value::Number(n) => n.as_f64().map(|x| serde_json::json!(x / 2.0 + 0.125)),
        _ => None,
    };
    let other = |(name, value): (&String, &serde_json::Value)| {
        let mut attributes = attributes.clone();
        attributes[name] = changed(value)?;
        op::read(op.name(), attributes).ok().filter(|other| other != op)
    };
    fields.filter_map(other).collect()
}

/// The same op with other random numbers, if it draws any.
pub(super) fn other_stream(op: &Op) -> Option<Op> {
    let mut attributes = op.attributes();
    let holder =
        if attributes.get("forward").is_some() { &mut attributes["forward"] } else { &mut attributes };
    let stream = holder.get("stream")?.as_u64()?;
    holder["stream"] = serde_json::json!(stream + 1);
    op::read(op.name(), attributes).ok()
}

/// Programs with another step, a step less, or an operand from elsewhere.
pub(super) fn other_programs(program: &Fused) -> Vec<Fused> {
    let mut list = Vec::new();
    for (at, step) in program.steps.iter().enumerate() {
        for op in other_attributes(&step.op) {
            let mut other = program.clone();
            other.steps[at].op = op;
            list.push(other);
        }
        for i in 0..step.x.len() {
            let mut other = program.clone();
            other.steps[at].x[i] = match step.x[i] {
                Operand::Input(input) => Operand::Input(input + 1),
                Operand::Step(_) => Operand::Input(0),
            };
            list.push(other);
            let mut turned = program.clone();
            turned.steps[at].x.rotate_left(i);
            list.push(turned);
        }
        if program.steps.len() > 1 {
            list.push(without_step(program, at));
        }
    }
    list.retain(|other| other != program);
    list
}

/// Readers of the step read its first operand instead.
fn without_step(program: &Fused, at: usize) -> Fused {
    let mut other = program.clone();
    let first = other.steps.remove(at).x[0];
    for operand in other.steps[at..].iter_mut().flat_map(|step| &mut step.x) {
        *operand = match *operand {
            Operand::Step(step) if step == at => first,
            Operand::Step(step) if step > at => Operand::Step(step - 1),
            operand => operand,
        };
    }
    other
}
