//! Fusion: what becomes one node, what must not, and that neither bits nor memory suffer.

mod common;

use common::{MACHINE, N_STEPS, check_run, reference};
use expect_test::{Expect, expect};
use remat::autodiff::{TrainingStep, training_step};
use remat::fuse::fuse;
use remat::graph::Graph;
use remat::model::{self, Options};
use remat::pipeline::{Costs, Prepared, prepare_step};
use remat::train::Optimizer;

/// Fuses a graph given as text and compares the nodes of the result, one per line.
fn check_fuse(text: &str, expected: Expect) {
    let graph = Graph::from_text(text).expect("valid text");
    let step = TrainingStep { loss: graph.outputs[0], gradients: Vec::new(), graph };
    let fused = fuse(&step);
    assert_eq!(fused.graph.verify(), Vec::<String>::new());
    let lines = fused.graph.nodes.iter().map(|node| fused.graph.node_text(node) + "\n");
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn a_chain_of_element_wise_nodes_becomes_one() {
    check_fuse(
        r#"graph "chain"
%0: f32[4,8] = input "x" "batch"
%1: f32[8] = input "row" "batch"
%2: f32[4,8] = add {} %0 %1 @a forward
%3: f32[4,8] = relu {} %2 @b forward
%4: f32[4,8] = mul {} %3 %0 @c forward
output %4
"#,
        expect![[r#"
            %2: f32[4,8] = fused {"steps":[{"op":{"add":{}},"x":[{"input":0},{"input":1}]},{"op":{"relu":{}},"x":[{"step":0}]},{"op":{"mul":{}},"x":[{"step":1},{"input":0}]}]} %0 %1 @c forward
        "#]],
    );
}

#[test]
fn a_value_that_somebody_else_reads_stays() {
    check_fuse(
        r#"graph "two readers"
%0: f32[4,8] = input "x" "batch"
%1: f32[4,8] = relu {} %0 @a forward
%2: f32[4,8] = scale {"factor":2.0} %1 @b forward
%3: f32[4,8] = softmax {} %1 @c forward
%4: f32[4,8] = add {} %2 %3 @d forward
output %4
"#,
        expect![[r#"
            %1: f32[4,8] = relu {} %0 @a forward
            %2: f32[4,8] = softmax {} %1 @c forward
            %3: f32[4,8] = fused {"steps":[{"op":{"scale":{"factor":2.0}},"x":[{"input":0}]},{"op":{"add":{}},"x":[{"step":0},{"input":1}]}]} %1 %2 @d forward
        "#]],
    );
}

/// The sum of two gradients frees both; waiting for the third would keep one more tensor alive.
#[test]
fn nothing_is_joined_that_would_keep_more_alive() {
    check_fuse(
        r#"graph "gradients that meet"
%0: f32[4,8] = input "a" "batch"
%1: f32[4,8] = input "b" "batch"
%2: f32[4,8] = input "c" "batch"
%3: f32[4,8] = softmax {} %0 @a forward
%4: f32[4,8] = softmax {} %1 @b forward
%5: f32[4,8] = add {} %3 %4 @sum forward
%6: f32[4,8] = softmax {} %2 @c forward
%7: f32[4,8] = add {} %5 %6 @sum forward
output %7
"#,
        expect![[r#"
            %3: f32[4,8] = softmax {} %0 @a forward
            %4: f32[4,8] = softmax {} %1 @b forward
            %5: f32[4,8] = add {} %3 %4 @sum forward
            %6: f32[4,8] = softmax {} %2 @c forward
            %7: f32[4,8] = add {} %5 %6 @sum forward
        "#]],
    );
}

#[test]
fn batch_norm_is_split_and_joined_with_what_follows() {
    check_fuse(
        r#"graph "residual"
%0: f32[4,8] = input "x" "batch"
%1: f32[4,8] = input "shortcut" "batch"
%2: f32[8] = parameter "weight" {"constant":1.0}
%3: f32[8] = parameter "bias" {"constant":0.0}
%4: f32[4,8], %5: f32[8], %6: f32[8] = batch_norm {"eps":1e-5} %0 %2 %3 @bn forward
%7: f32[4,8] = add {} %4 %1 @block forward
%8: f32[4,8] = relu {} %7 @relu forward
%9: f32[4,8] = softmax {} %8 @next forward
%10: f32[4,8] = relu_grad {} %8 %9 @relu backward
%11: f32[4,8], %12: f32[8], %13: f32[8] = batch_norm_grad {"eps":1e-5} %0 %10 %2 %5 %6 @bn backward
output %11
"#,
        expect![[r#"
            %4: f32[8], %5: f32[8] = batch_stats {} %0 @bn forward
            %6: f32[4,8] = fused {"steps":[{"op":{"batch_norm_apply":{"eps":9.999999747378752e-6}},"x":[{"input":0},{"input":1},{"input":2},{"input":3},{"input":4}]},{"op":{"add":{}},"x":[{"step":0},{"input":5}]},{"op":{"relu":{}},"x":[{"step":1}]}]} %0 %4 %5 %2 %3 %1 @relu forward
            %7: f32[4,8] = softmax {} %6 @next forward
            %8: f32[4,8] = relu_grad {} %6 %7 @relu backward
            %9: f32[4,8], %10: f32[8], %11: f32[8] = batch_norm_grad {"eps":9.999999747378752e-6} %0 %8 %2 %4 %5 @bn backward
        "#]],
    );
}

/// Where the ReLU was on follows from the input of the norm, so backward does not read the ReLU's output.
#[test]
fn the_gradients_of_relu_and_batch_norm_become_one() {
    check_fuse(
        r#"graph "norm and relu"
%0: f32[4,8] = input "x" "batch"
%1: f32[4,8] = input "dz" "batch"
%2: f32[8] = parameter "weight" {"constant":1.0}
%3: f32[8] = parameter "bias" {"constant":0.0}
%4: f32[4,8], %5: f32[8], %6: f32[8] = batch_norm {"eps":0.5} %0 %2 %3 @bn forward
%7: f32[4,8] = relu {} %4 @relu forward
%8: f32[4,8] = softmax {} %7 @next forward
%9: f32[4,8] = softmax_grad {} %8 %1 @next backward
%10: f32[4,8] = relu_grad {} %7 %9 @relu backward
%11: f32[4,8], %12: f32[8], %13: f32[8] = batch_norm_grad {"eps":0.5} %0 %10 %2 %5 %6 @bn backward
output %11
"#,
        expect![[r#"
            %4: f32[8], %5: f32[8] = batch_stats {} %0 @bn forward
            %6: f32[4,8] = fused {"steps":[{"op":{"batch_norm_apply":{"eps":0.5}},"x":[{"input":0},{"input":1},{"input":2},{"input":3},{"input":4}]},{"op":{"relu":{}},"x":[{"step":0}]}]} %0 %4 %5 %2 %3 @relu forward
            %7: f32[4,8] = softmax {} %6 @next forward
            %8: f32[4,8] = softmax_grad {} %7 %1 @next backward
            %9: f32[4,8], %10: f32[8], %11: f32[8] = batch_norm_relu_grad {"eps":0.5} %0 %8 %2 %3 %4 %5 @bn backward
        "#]],
    );
}

/// Only the dropped output is kept for backward: it knows where the ReLU was positive as well as the ReLU does.
#[test]
fn a_relu_in_front_of_dropout_need_not_be_kept() {
    check_fuse(
        r#"graph "feed-forward"
%0: f32[4,8] = input "x" "batch"
%1: f32[4,8] = input "dy" "batch"
%2: f32[4,8] = relu {} %0 @relu forward
%3: f32[4,8] = dropout {"p":0.5,"stream":7} %2 @dropout forward
%4: f32[4,8] = softmax_grad {} %3 %1 @next backward
%5: f32[4,8] = dropout {"p":0.5,"stream":7} %4 @dropout backward
%6: f32[4,8] = relu_grad {} %2 %5 @relu backward
output %6
"#,
        expect![[r#"
            %2: f32[4,8] = fused {"steps":[{"op":{"relu":{}},"x":[{"input":0}]},{"op":{"dropout":{"p":0.5,"stream":7}},"x":[{"step":0}]}]} %0 @dropout forward
            %3: f32[4,8] = softmax_grad {} %2 %1 @next backward
            %4: f32[4,8] = fused {"steps":[{"op":{"dropout":{"p":0.5,"stream":7}},"x":[{"input":0}]},{"op":{"relu_grad":{}},"x":[{"input":1},{"step":0}]}]} %3 %2 @relu backward
        "#]],
    );
}

/// The loss and its gradient each computed all logits; together they do it once.
#[test]
fn the_loss_of_a_classifier_shares_its_logits_with_the_gradient() {
    check_fuse(
        r#"graph "classifier"
%0: f32[4,8] = input "x" "batch"
%1: f32[9,8] = input "weight" "batch"
%2: i32[4] = input "labels" "batch"
%3: f32[], %4: f32[4] = linear_cross_entropy {} %0 %1 %2 @head forward
%5: f32[] = constant {"value":1.0,"shape":[]} @loss backward
%6: f32[4,8], %7: f32[9,8] = linear_cross_entropy_grad {} %0 %1 %2 %4 %5 @head backward
output %3
output %6
output %7
"#,
        expect![[r#"
            %3: f32[] = constant {"shape":[],"value":1.0} @loss backward
            %4: f32[], %5: f32[4], %6: f32[4,8], %7: f32[9,8] = linear_cross_entropy_with_grad {} %0 %1 %2 %3 @head backward
        "#]],
    );
}

type Sizes = &'static [(&'static str, usize)];

const LANGUAGE: Sizes =
    &[("batch", 2), ("seq", 24), ("vocab", 101), ("dim", 32), ("layers", 2), ("heads", 4)];
const MODELS: [(&str, Sizes); 6] = [
    ("resnet18", &[("batch", 2), ("image", 32), ("classes", 10)]),
    ("resnet50", &[("batch", 2), ("image", 64), ("classes", 10)]),
    ("unet", &[("batch", 2), ("image", 32), ("width", 8)]),
    ("transformer", LANGUAGE),
    ("bert", LANGUAGE),
    ("gpt", LANGUAGE),
];

/// The training step of a model before and after fusion.
fn before_and_after(name: &str, sizes: Sizes) -> [TrainingStep; 2] {
    let options = sizes.iter().fold(Options::new(), |options, &(name, value)| options.with(name, value));
    let forward = model::find(name).expect("a known model").build(&options).expect("valid options");
    let step = training_step(&forward, &Optimizer::adam(1e-3)).expect("a valid step");
    let fused = fuse(&step);
    assert_eq!(fused.graph.verify(), Vec::<String>::new(), "{name}");
    [step, fused]
}

#[test]
fn losses_gradients_and_state_keep_every_bit() {
    for (name, sizes) in MODELS {
        let steps = before_and_after(name, sizes);
        let oracles = steps.each_ref().map(|step| reference(step, 2));
        let [apart, fused] = oracles.each_ref().map(|oracle| &oracle.bits);
        assert_eq!(apart.losses, fused.losses, "{name}: the loss changed");
        assert_eq!(apart.state, fused.state, "{name}: a parameter or its state changed");
        for ((parameter, before), (_, after)) in steps[0].gradients.iter().zip(&steps[1].gradients) {
            for number in 1..=N_STEPS {
                let parameter = steps[0].graph.value_name(*parameter);
                let (before, after) =
                    (apart.gradients[&(number, *before)], fused.gradients[&(number, *after)]);
                assert_eq!(before, after, "{name}: the gradient of {parameter} changed in step {number}");
            }
        }
        let prepared =
            prepare_step(steps[1].clone(), Costs::Analytic(MACHINE), |_, _| {}).expect("a valid step");
        check_run(&steps[1], &oracles[1], &prepared.keep_all, 1, name);
    }
}

#[test]
fn no_model_needs_more_memory_or_more_time() {
    for (name, sizes) in MODELS {
        let [apart, fused] = before_and_after(name, sizes)
            .map(|step| prepare_step(step, Costs::Analytic(MACHINE), |_, _| {}).expect("a valid step"));
        let facts = |p: &Prepared| (p.keep_all.peak(), p.floor.bytes, p.problem.problem.base_cost());
        let (before, after) = (facts(&apart), facts(&fused));
        assert!(after.0 <= before.0, "{name}: the keep-all peak grew from {} to {}", before.0, after.0);
        assert!(after.1 <= before.1, "{name}: the floor grew from {} to {}", before.1, after.1);
        assert!(after.2 <= before.2, "{name}: the step takes {} s instead of {}", after.2, before.2);
    }
}
