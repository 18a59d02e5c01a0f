//! Mistakes are reported once, with the module, the line of the user's call and what is wrong.

use remat::Error;
use remat::nn::{Conv, DecoderLayer, Init, Linear, Loss, Model, Net, Residual, Tensor};
use remat::op::relu::Relu;
use std::cell::Cell;

/// Builds a network that notes the line of its mistake, and compares what is said about it.
fn check<F>(place: &str, message: &str, build: F)
where
    F: for<'g> FnOnce(&'g Net, &Cell<u32>) -> Loss<'g>,
{
    let line = Cell::new(0);
    let error = Model::build("wrong", |g| build(g, &line)).expect_err("the network is wrong");
    assert_eq!(error.to_string(), format!("{place} at {}:{}: {message}", file!(), line.get()));
    assert!(matches!(error, Error::Model { .. }));
}

fn features(g: &Net) -> Tensor<'_> {
    g.input("input", [4, 6])
}

fn classify<'g>(g: &'g Net, logits: Tensor<'g>) -> Loss<'g> {
    logits.cross_entropy(g.labels("labels", [4], 10))
}

#[test]
fn a_layer_is_reported_with_its_module_and_line() {
    check("block.1.conv", "x must be a float tensor of rank 4, got f32[4,6]", |g, line| {
        let x = features(g);
        let x = g.scope("block", || {
            line.set(line!() + 1);
            x.scope("1", |x| x.conv2d("conv", Conv::same(8, 3)))
        });
        classify(g, x)
    });
    check("block.1", "window has 4 in height, but the padded image has only 2", |g, line| {
        let x = g.input("input", [4, 8, 8, 3]).conv2d("conv", Conv::same(10, 3)).max_pool(4);
        line.set(line!() + 1);
        let x = x.scope("block.1", |x| x.max_pool(4));
        classify(g, x.global_avg_pool())
    });
}

#[test]
fn in_a_chain_over_several_lines_the_line_is_that_of_the_method() {
    check("reshape", "f32[4,10] has 40 elements, f32[4,9] has 36", |g, line| {
        line.set(line!() + 5);
        let x = features(g)
            .linear("fc1", 20)
            .relu()
            .linear("fc2", 10)
            .reshape([4, 9])
            .dropout(0.5)
            .linear("fc3", 10);
        classify(g, x)
    });
}

#[test]
fn operators_and_ops_have_lines_too() {
    check("add", "cannot add f32[3,6] to f32[4,6]", |g, line| {
        let (x, y) = (features(g), g.input("other", [3, 6]));
        line.set(line!() + 1);
        let sum = x + y;
        classify(g, sum)
    });
    check("mul", "a and b must have the same type, got f32[4,6] and f32[6]", |g, line| {
        let (x, y) = (features(g), g.input("other", [6]));
        line.set(line!() + 1);
        let product = x * y;
        classify(g, product)
    });
    check("relu", "takes 1 inputs, got 2", |g, line| {
        let x = features(g);
        line.set(line!() + 1);
        let y = g.apply(Relu {}, &[x, x]);
        classify(g, y)
    });
    check("relu", "has 1 outputs, not 2", |g, line| {
        let x = features(g);
        line.set(line!() + 1);
        let [y, _] = g.apply_all(Relu {}, &[x]);
        classify(g, y)
    });
    check("transpose", "f32[4,6] has no dimension 2", |g, line| {
        line.set(line!() + 1);
        let x = features(g).transpose(0, 2);
        classify(g, x)
    });
}

#[test]
fn a_mistake_inside_a_block_is_at_the_line_that_called_it() {
    let few = "training needs more than one value per channel; use a larger batch or image";
    check("stage.0.bn1", few, |g, line| {
        let x = g.input("input", [1, 2, 2, 3]);
        line.set(line!() + 1);
        let x = x.residual("stage.0", Residual::basic(8).stride(2));
        classify(g, x.global_avg_pool())
    });
    check("h.0.attn", "the width 6 does not divide into 4 heads", |g, line| {
        let x = g.input("input", [4, 5, 6]);
        line.set(line!() + 1);
        let x = x.decoder_layer("h.0", DecoderLayer::new(4, 24));
        x.mse(x)
    });
    check(
        "net.0",
        "a tensor of shape [4611686018427387903, 4] is too large to address; use a smaller batch, image, sequence or width",
        |g, line| {
            line.set(line!() + 1);
            let x = g.input("input", [1, 4]).mlp("net", &[usize::MAX / 4, 10]);
            classify(g, x)
        },
    );
    // After a block, lines count again.
    check("fc", "weight must be a float tensor of rank 2, got f32[10]", |g, line| {
        let x = features(g).mlp("net", &[4, 10]);
        let weight = g.parameter("weight", [10], Init::Constant(0.0));
        line.set(line!() + 1);
        x.linear_cross_entropy("fc", weight, g.labels("labels", [4], 10))
    });
}

#[test]
fn sizes_that_cannot_be_addressed() {
    let message = "is too large to address; use a smaller batch, image, sequence or width";
    let huge = usize::MAX;
    check("input", &format!("a tensor of shape [{huge}, 2] {message}"), |g, line| {
        line.set(line!() + 1);
        let x = g.input("input", [huge, 2]);
        classify(g, x)
    });
    check("a.fc", &format!("a tensor of shape [{huge}, 6] {message}"), |g, line| {
        line.set(line!() + 1);
        let x = features(g).scope("a", |x| x.linear("fc", Linear::new(huge)));
        classify(g, x)
    });
}

#[test]
fn names_must_differ() {
    check("fc.weight", "the name is taken; give this layer another one", |g, line| {
        let x = features(g).linear("fc", 6);
        line.set(line!() + 1);
        let x = x.linear("fc", 10);
        classify(g, x)
    });
    check("a.input", "the name is taken; give this input another one", |g, line| {
        let x = g.scope("a", || features(g));
        line.set(line!() + 1);
        let y = g.scope("a", || g.input("input", [4, 10]));
        classify(g, x.linear("fc", 10) + y)
    });
}

#[test]
fn integers_stay_within_what_they_choose_from() {
    check("cross_entropy", "`labels` is in 0..10, but there are only 7 classes", |g, line| {
        let labels = g.labels("labels", [4], 10);
        let logits = features(g).linear("fc", 7);
        line.set(line!() + 1);
        logits.cross_entropy(labels)
    });
    check("head", "`labels` is in 0..10, but there are only 9 classes", |g, line| {
        let labels = g.labels("labels", [4], 10);
        line.set(line!() + 1);
        features(g).linear_cross_entropy("head", 9, labels)
    });
    check("words", "`ids` is in 0..10, but there are only 9 rows", |g, line| {
        let ids = g.tokens("ids", [4], 10);
        line.set(line!() + 1);
        let x = ids.embedding("words", [9, 10]);
        classify(g, x)
    });
}

#[test]
fn shapes_that_code_relies_on() {
    check("dims", "expected 3 dimensions, got f32[4,6]", |g, line| {
        line.set(line!() + 1);
        let [batch, time, width] = features(g).dims();
        assert_eq!([batch, time, width], [1; 3]);
        classify(g, features(g).reshape([batch * time, width]))
    });
    check("positions", "takes [batch, time, width], got f32[4,6]", |g, line| {
        let positions = g.embedding("positions", [4, 6]);
        line.set(line!() + 1);
        let x = features(g).add_positions(positions);
        classify(g, x)
    });
}

#[test]
fn a_loss_is_a_single_number_that_the_network_computes() {
    check("loss", "must be a single number, got f32[4,6]", |g, line| {
        line.set(line!() + 1);
        features(g).loss()
    });
    let here = line!() + 1;
    let error = Model::build("wrong", |g| g.parameter("alone", [], Init::Constant(0.0)).loss());
    let expected = format!("loss at {}:{here}: must be computed by the network", file!());
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn tensors_of_two_networks_do_not_mix() {
    check("network", "a tensor of another network is used here", |g, line| {
        let x = features(g);
        let inner = Model::build("inner", |other| {
            let y = other.input("other", [4, 6]);
            line.set(line!() + 1);
            let _ = x + y;
            y.mse(y)
        });
        assert!(inner.is_ok(), "the mistake belongs to the first operand's network");
        classify(g, x)
    });
}

#[test]
fn only_the_first_mistake_counts_and_later_calls_do_nothing() {
    check("first", "x must be a float tensor of rank 4, got f32[4,6]", |g, line| {
        line.set(line!() + 1);
        let x = features(g).conv2d("first", Conv::new(3, 3));
        assert_eq!(format!("{x:?}"), "nothing, after a mistake");
        assert_eq!((x.shape(), x.width()), (vec![], 1));
        let y = x.conv2d("second", Conv::new(0, 0)).reshape([]) + g.input("input", [usize::MAX, 9]);
        let words = g.embedding("first", [1, 1]);
        y.linear_cross_entropy("", words, x).predicting(y) + x.loss() * 2.0
    });
}

#[test]
fn a_function_can_fail_for_reasons_of_its_own() {
    let own = || Error::TrainingData { place: "mine".into(), message: "missing".into() };
    let error = Model::try_build("own", |g| {
        features(g).linear("fc", 10);
        Err(own())
    });
    assert_eq!(error.unwrap_err().to_string(), "mine: missing");
    let error = Model::try_build("own", |g| {
        features(g).conv2d("conv", Conv::new(1, 1));
        Err(own())
    });
    let message = error.unwrap_err().to_string();
    assert!(message.starts_with("conv at "), "the mistake came first: {message}");
    let model = Model::try_build("own", |g| Ok(classify(g, features(g).linear("fc", 10)))).unwrap();
    assert_eq!(model.n_parameters(), 70);
}
