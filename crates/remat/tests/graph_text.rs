//! The text form of graphs: what is printed parses back, and every mistake is named with its line.

use expect_test::{Expect, expect};
use remat::graph::Graph;

const STEP: &str = r#"graph "tiny"
%0: f32[2,3] = input "x" "batch"
%1: f32[2,3] = parameter "w" {"uniform":0.5}
%2: f32[2,3] = add {} %0 %1 @block.0 forward
%3: f32[2,3] = relu {} %2 @block.0 forward
%4: f32[2,3] = relu_grad {} %3 %2 @block.0 backward
%5: f32[2,3] = sgd {"momentum":0.0,"nesterov":false,"weight_decay":0.0} %1 %4 @block.0 optimizer
output %3
"#;

#[test]
fn printing_and_parsing_are_inverse() {
    let graph = Graph::from_text(STEP).expect("valid text");
    assert_eq!(graph.to_text(), STEP);
    assert_eq!(Graph::from_text(&graph.to_text()).expect("valid text"), graph);
}

fn check_fault(from: &str, to: &str, expected: Expect) {
    assert!(STEP.contains(from), "the fixture has no `{from}`");
    let fault = Graph::from_text(&STEP.replace(from, to)).expect_err("a fault").to_string();
    expected.assert_eq(&fault);
}

#[test]
fn every_mistake_is_named_with_its_place() {
    check_fault("add {} %0 %1", "add {} %0 %9", expect!["graph text, line 4: %9 is not defined yet"]);
}

#[test]
fn every_mistake_of_a_line_is_refused() {
    for (from, to) in [
        ("f32[2,3] = add", "f32[2,4] = add"),
        ("f32[2,3] = input", "f64[2,3] = input"),
        ("%3: f32[2,3] = relu", "%7: f32[2,3] = relu"),
        ("@block.0 forward", "@block.0 sideways"),
        ("\"batch\"", "\"banana\""),
        ("output %3", "output %33"),
        ("%2: f32[2,3] = add {} %0 %1", "%2: f32[2,3] = add {} %0"),
        ("f32[2,3] = input", "f32[99999999999,99999999999] = input"),
    ] {
        assert!(STEP.contains(from), "the fixture has no `{from}`");
        assert!(Graph::from_text(&STEP.replacen(from, to, 1)).is_err(), "{from} -> {to} was accepted");
    }
}

#[test]
fn the_verifier_returns_every_fault() {
    let mut graph = Graph::from_text(STEP).expect("valid text");
    assert!(graph.verify().is_empty());
    let ids: Vec<_> = graph.nodes.ids().collect();
    // The update now comes before a reader of the old state, and two sources have one name.
    graph.nodes[ids[2]].inputs[1] = graph.sources[1].value;
    let update = graph.nodes[ids[3]].clone();
    graph.nodes[ids[3]] = graph.nodes[ids[2]].clone();
    graph.nodes[ids[2]] = update;
    graph.sources[1].name = "x".into();
    let faults = graph.verify();
    assert!(faults.len() >= 2, "{faults:?}");
}

#[test]
fn dot_names_every_node_once() {
    let graph = Graph::from_text(STEP).expect("valid text");
    let dot = graph.to_dot();
    for id in graph.nodes.ids() {
        assert_eq!(dot.matches(&format!("  {id} [label=")).count(), 1);
    }
    assert_eq!(dot.matches("->").count(), graph.nodes.iter().map(|n| n.inputs.len()).sum::<usize>());
}
