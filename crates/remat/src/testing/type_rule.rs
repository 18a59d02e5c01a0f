//! The type rule: it accepts the example and answers every misuse with a message.

use crate::graph::Type;
use crate::op::Example;

/// An example is well typed, and wrong inputs get a message instead of a panic.
pub(super) fn check(example: &Example) {
    let Example { op, inputs } = example;
    let types: Vec<&Type> = inputs.iter().map(|(ty, _)| ty).collect();
    op.def().infer(&types).unwrap_or_else(|message| panic!("{op:?}: {message}"));
    let huge = usize::MAX / 8;
    let shapes: [&[usize]; 9] = [
        &[],
        &[0],
        &[3],
        &[0, 3],
        &[2, 0],
        &[2, 3, 4],
        &[1, 2, 3, 4],
        &[1, 1, 1, 1, 1],
        &[1, 1 << 40, 1 << 20],
    ];
    let mut odd: Vec<Type> =
        shapes.iter().flat_map(|shape| [Type::f32(shape), Type::i32(shape)]).flatten().collect();
    odd.extend([Type::f32(&[0, huge, huge]), Type::f32(&[huge])].into_iter().flatten());
    let mut cases: Vec<Vec<&Type>> = vec![Vec::new(), [&types[..], &types[..]].concat()];
    cases.extend((0..types.len()).map(|n| types[..n].to_vec()));
    for (i, wrong) in (0..types.len()).flat_map(|i| odd.iter().map(move |wrong| (i, wrong))) {
        let mut case = types.clone();
        case[i] = wrong;
        cases.push(case);
    }
    cases.extend(odd.iter().map(|wrong| vec![wrong; types.len()]));
    for case in cases {
        // Some of these are fine; then everything that is computed from the types must be, too.
        match op.def().infer(&case) {
            Ok(y) => {
                let y: Vec<&Type> = y.iter().collect();
                op.def().cost(&case, &y);
                op.def().workspace(&case, &y);
                op.def().reuse(&case);
            }
            Err(message) => {
                let flawed = message.is_empty() || message.ends_with('.');
                assert!(!flawed, "{op:?}: a message says something, without a final dot: {message}");
            }
        }
    }
}
