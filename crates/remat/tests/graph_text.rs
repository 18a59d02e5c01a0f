//! The text form of graphs: what is printed parses back. Mistakes in a text, and every fault that the verifier reports, are
//! text cases in tests/corpus/.

#[path = "common/planned.rs"]
mod planned;

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

/// Fused nodes print their programs, and values of joined nodes have the kind that follows from their node.
#[test]
fn fused_steps_of_models_are_printed_and_parsed() {
    for (prepared, _) in planned::programs() {
        let graph = &prepared.step.graph;
        let text = graph.to_text();
        assert!(text.contains(" = fused \""), "{} has no fused node", graph.name);
        let parsed = Graph::from_text(&text).expect("printed text parses");
        assert!(parsed == *graph, "{} does not parse back to the same graph", graph.name);
    }
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
