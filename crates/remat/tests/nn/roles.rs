//! What a model knows about its loss, and its options from outside.

use remat::model::Options;
use remat::nn::{Loss, Model, Net};

fn model(build: for<'g> fn(&'g Net) -> Loss<'g>) -> Model {
    Model::build("roles", build).expect("the network is right")
}

/// The op that compares, and the names of prediction and labels.
fn roles(model: &Model) -> (String, Option<String>, Option<String>) {
    let (graph, roles) = (model.graph(), model.roles());
    assert_eq!(graph.outputs, [roles.loss]);
    let name = |value| graph.value_name(value);
    (graph.nodes[roles.compares].op.name().to_string(), roles.prediction.map(name), roles.labels.map(name))
}

fn named(op: &str, prediction: Option<&str>, labels: &str) -> (String, Option<String>, Option<String>) {
    (op.to_owned(), prediction.map(str::to_owned), Some(labels.to_owned()))
}

#[test]
fn a_loss_knows_what_is_compared_with_what() {
    let classifier = model(|g| g.input("x", [2, 3]).linear("fc", 5).cross_entropy(g.labels("y", [2], 5)));
    assert_eq!(roles(&classifier), named("cross_entropy", Some("fc.linear_0"), "y"));
    let regression = model(|g| g.input("x", [2, 3]).linear("fc", 5).mse(g.input("y", [2, 5])));
    assert_eq!(roles(&regression), named("mse", Some("fc.linear_0"), "y"));
    let language = model(|g| {
        let (x, y) = (g.tokens("x", [2, 3], 7), g.labels("y", [2, 3], 7));
        x.embedding("words", [7, 4]).linear_cross_entropy("head", 7, y)
    });
    assert_eq!(roles(&language), named("linear_cross_entropy", None, "y"));
}

#[test]
fn the_first_of_several_losses_says_what_is_predicted() {
    let two = model(|g| {
        let h = g.input("x", [2, 3]).linear("body", 4);
        let main = h.linear("main", 5).cross_entropy(g.labels("y", [2], 5));
        main + h.linear("other", 3).mse(g.input("z", [2, 3])) * 0.5
    });
    assert_eq!(roles(&two), named("cross_entropy", Some("main.linear_1"), "y"));
    let loss = two.graph().values[two.roles().loss].producer.expect("a node makes it").0;
    assert_eq!(two.graph().nodes[loss].op.name(), "add");
}

#[test]
fn a_loss_of_ones_own_can_say_what_is_predicted() {
    let own = model(|g| {
        let y = g.input("x", [2, 3]).linear("fc", 5);
        y.mse(g.input("y", [2, 5])).tensor().scale(2.0).loss().predicting(y)
    });
    assert_eq!(roles(&own), ("scale".to_owned(), Some("fc.linear_0".to_owned()), None));
}

#[test]
fn listed_models_take_options_in_any_form() {
    let typed = [("layers", "2"), ("width", "8")];
    let names = [
        Model::registry("mlp", [("layers", 2), ("width", 8)]),
        Model::registry("mlp", Options::from(&typed)),
        Model::registry("mlp", typed),
        Model::registry("mlp", Options::new().with("layers", 2).with("width", 8)),
    ];
    for model in names {
        assert_eq!(model.unwrap().name(), "mlp(batch=64,features=784,width=8,layers=2,classes=10)");
    }
    assert!(Model::registry("mlp", ()).unwrap().name().contains("width=1024"));
    let message = Model::registry("mpl", ()).unwrap_err().to_string();
    assert!(message.ends_with("(did you mean `mlp`?)"), "{message}");
    assert!(Model::registry("mlp", [("depth", 3)]).unwrap_err().to_string().contains("`depth`"));
}

#[test]
fn a_summary_counts_shared_parameters_once() {
    let model = model(|g| {
        let (x, y) = (g.tokens("x", [2, 3], 7), g.labels("y", [2, 3], 7));
        let words = g.embedding("words", [7, 4]);
        words.lookup(x).batch_norm("bn").linear_cross_entropy("head", words, y)
    });
    let expected = "\
roles: 36 parameters
module  op                    output      parameters
words   embedding             f32[2,3,4]          28
bn      batch_norm            f32[2,3,4]           8
head    linear_cross_entropy  f32[]                0
";
    assert_eq!(model.summary(), expected);
}
