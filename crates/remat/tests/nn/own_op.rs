//! An op that this crate does not know, in a network.

use remat::graph::Type;
use remat::nn::{Loss, Model, Net};
use remat::op::{Cost, Example, Io, NaiveIo, OpDef};

/// The largest and the smallest element of every row.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
struct Extremes {}

impl OpDef for Extremes {
    fn name() -> &'static str {
        "extremes"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        match x {
            [x] if x.rank() == 2 => {
                let rows = Type::f32(&x.shape()[..1]).map_err(|e| e.to_string())?;
                Ok(vec![rows.clone(), rows])
            }
            _ => Err("takes one matrix".to_owned()),
        }
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 2)
    }

    fn run(&self, _io: &mut Io<'_>) {
        unreachable!("nothing runs while a network is built")
    }

    fn naive(&self, _io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        unreachable!("nothing runs while a network is built")
    }

    fn examples() -> Vec<Example> {
        Vec::new()
    }
}

#[test]
fn an_op_of_ones_own_chains_like_ours() {
    fn network(g: &Net) -> Loss<'_> {
        let x = g.input("x", [4, 6]).linear("fc", 3);
        let [largest, smallest] = g.scope("ends", || g.apply_all(Extremes {}, &[x]));
        (x.apply(Extremes {}) + largest - smallest).mse(g.input("y", [4]))
    }
    let model = Model::build("own", network).unwrap();
    let extremes = model.graph().nodes.iter().filter(|node| node.op.is::<Extremes>());
    assert_eq!(extremes.map(|node| node.scope.as_str()).collect::<Vec<_>>(), ["ends", ""]);
    assert_eq!(model.graph().verify(), Vec::new());
}

#[test]
fn its_type_rule_is_reported_like_ours() {
    let line = line!() + 1;
    let error = Model::build("own", |g| g.scope("ends", || g.input("x", [4]).apply(Extremes {})).loss());
    let expected = format!("ends at {}:{line}: takes one matrix", file!());
    assert_eq!(error.unwrap_err().to_string(), expected);
}
