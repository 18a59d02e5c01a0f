//! The shape and the parameters of every layer.

use remat::graph::{Graph, Kind};
use remat::nn::{
    Attention, BatchNorm, Conv, ConvTranspose, DecoderLayer, EncoderLayer, Init, Linear, Model, Net, Pool,
    Residual, Table, Tensor,
};

/// A network that ends in `build`, the shape of what it makes, and its state as `name[shape]`.
fn built<F>(build: F) -> (Graph, Vec<usize>, Vec<String>)
where
    F: for<'g> FnOnce(&'g Net) -> Tensor<'g>,
{
    let mut shape = Vec::new();
    let model = Model::build("layer", |g| {
        let y = build(g);
        shape = y.shape();
        y.mse(y)
    });
    let graph = model.expect("a layer of fitting sizes").into_graph();
    assert_eq!(graph.verify(), Vec::new());
    let state = graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state());
    let state = state.map(|s| format!("{}{:?}", s.name, graph.values[s.value].ty.shape())).collect();
    (graph, shape, state)
}

fn image(g: &Net) -> Tensor<'_> {
    g.input("input", [2, 8, 6, 4])
}

fn sequence(g: &Net) -> Tensor<'_> {
    g.input("input", [2, 5, 12])
}

/// The ops of the network, as `op@scope`.
fn ops(graph: &Graph) -> Vec<String> {
    graph.nodes.iter().map(|n| format!("{}@{}", n.op.name(), n.scope)).collect()
}

#[test]
fn linear_layers() {
    let (_, shape, state) = built(|g| sequence(g).linear("fc", 7));
    assert_eq!((shape, state), (vec![2, 5, 7], vec!["fc.weight[7, 12]".into(), "fc.bias[7]".into()]));
    let (graph, shape, state) =
        built(|g| sequence(g).linear("fc", Linear::new(7).no_bias().init(Init::Normal(0.5))));
    assert_eq!((shape, state), (vec![2, 5, 7], vec!["fc.weight[7, 12]".into()]));
    assert_eq!(graph.sources[1].init, Init::Normal(0.5));
    let (graph, shape, state) = built(|g| sequence(g).mlp("net", &[9, 3]));
    assert_eq!(shape, [2, 5, 3]);
    assert_eq!(state, ["net.0.weight[9, 12]", "net.0.bias[9]", "net.1.weight[3, 9]", "net.1.bias[3]"]);
    assert_eq!(ops(&graph)[..3], ["linear@net.0", "relu@net.0", "linear@net.1"]);
}

#[test]
fn convolutions() {
    let shape = |conv: Conv| built(|g| image(g).conv2d("conv", conv)).1;
    assert_eq!(shape(Conv::new(5, 3)), [2, 6, 4, 5]);
    assert_eq!(shape(Conv::same(5, 3)), [2, 8, 6, 5]);
    assert_eq!(shape(Conv::same(5, [3, 5])), [2, 8, 6, 5]);
    assert_eq!(shape(Conv::same(5, 3).dilation(2)), [2, 8, 6, 5]);
    assert_eq!(shape(Conv::same(5, 3).stride(2)), [2, 4, 3, 5]);
    assert_eq!(shape(Conv::new(5, 3).padding([2, 1]).stride([1, 2])), [2, 10, 3, 5]);
    let (graph, _, state) = built(|g| image(g).conv2d("conv", Conv::same(8, 3).groups(4).no_bias()));
    assert_eq!(state, ["conv.weight[8, 3, 3, 1]"]);
    assert_eq!(graph.sources[1].init, Init::Uniform(1.0 / 3.0), "the fan-in is that of one group");

    let transposed = ConvTranspose::new(3, 2).stride(2);
    let (graph, shape, state) = built(|g| image(g).conv_transpose2d("up", transposed));
    assert_eq!(shape, [2, 16, 12, 3]);
    assert_eq!(state, ["up.weight[4, 2, 2, 3]", "up.bias[3]"]);
    assert_eq!(graph.sources[1].init, Init::Uniform((1.0 / 12f64.sqrt()) as f32));
    let cut = transposed.padding(1).no_bias().init(Init::Normal(0.1));
    let (_, shape, state) = built(|g| image(g).conv_transpose2d("up", cut));
    assert_eq!((shape, state), (vec![2, 14, 10, 3], vec!["up.weight[4, 2, 2, 3]".into()]));
}

#[test]
fn pooling() {
    let shape = |build: for<'g> fn(Tensor<'g>) -> Tensor<'g>| built(|g| build(image(g))).1;
    assert_eq!(shape(|x| x.max_pool(2)), [2, 4, 3, 4]);
    assert_eq!(shape(|x| x.max_pool(Pool::new(3).stride(2).padding(1))), [2, 4, 3, 4]);
    assert_eq!(shape(|x| x.avg_pool(Pool::new([4, 3]))), [2, 2, 2, 4]);
    assert_eq!(shape(|x| x.global_avg_pool()), [2, 4]);
}

#[test]
fn norms() {
    let (graph, shape, state) =
        built(|g| image(g).batch_norm_with("bn", BatchNorm { momentum: 0.5, ..BatchNorm::default() }));
    assert_eq!(shape, [2, 8, 6, 4]);
    assert_eq!(state, ["bn.weight[4]", "bn.bias[4]", "bn.running_mean[4]", "bn.running_var[4]"]);
    assert!(graph.to_text().contains("\"momentum\":0.5"));
    assert_eq!(ops(&graph)[..3], ["batch_norm@bn", "running_update@bn", "running_update@bn"]);
    let (_, shape, state) = built(|g| sequence(g).layer_norm("norm"));
    assert_eq!((shape, state), (vec![2, 5, 12], vec!["norm.weight[12]".into(), "norm.bias[12]".into()]));
    let (graph, shape, state) = built(|g| sequence(g).rms_norm("norm").layer_norm_eps("last", 1e-3));
    assert_eq!(shape, [2, 5, 12]);
    assert_eq!(state, ["norm.weight[12]", "last.weight[12]", "last.bias[12]"]);
    assert!(graph.to_text().contains("\"eps\":0.00100"));
}

#[test]
fn element_wise_ops_and_arithmetic() {
    let (graph, shape, _) = built(|g| {
        let x = sequence(g);
        let y = x.relu().gelu().gelu_tanh().silu().softmax().scale(2.0).dropout(0.0).dropout(0.5);
        (x + y) * x - y * 3.0
    });
    assert_eq!(shape, [2, 5, 12]);
    let ops = ops(&graph);
    let expected =
        "relu@ gelu@ gelu@ silu@ softmax@ scale@ dropout@ add@ mul@ scale@ scale@ add@ mse@".split(' ');
    assert_eq!(ops, expected.collect::<Vec<_>>(), "dropping nothing adds nothing");
    assert!(graph.to_text().contains("\"stream\":6"), "the stream is the node's own number");
    // The smaller operand is repeated, on whichever side it is.
    assert_eq!(built(|g| g.parameter("b", [12], Init::Constant(0.0)) + sequence(g)).1, [2, 5, 12]);
}

#[test]
fn shapes_and_products() {
    let shape = |build: for<'g> fn(Tensor<'g>) -> Tensor<'g>| built(|g| build(image(g))).1;
    assert_eq!(shape(|x| x.reshape([2, 48, 4])), [2, 48, 4]);
    assert_eq!(shape(|x| x.flatten()), [2, 192]);
    assert_eq!(shape(|x| x.permute([0, 3, 1, 2])), [2, 4, 8, 6]);
    assert_eq!(shape(|x| x.transpose(1, 3)), [2, 4, 6, 8]);
    assert_eq!(shape(|x| x.slice(1, 2..5)), [2, 3, 6, 4]);
    assert_eq!(shape(|x| x.pad(2, 1, 3)), [2, 8, 10, 4]);
    assert_eq!(shape(|x| x.concat(x.slice(3, 0..1), 3)), [2, 8, 6, 5]);
    assert_eq!(shape(|x| x.net().concat(&[x, x, x], 0)), [6, 8, 6, 4]);
    assert_eq!(shape(|x| x.matmul(x.transpose(2, 3))), [2, 8, 6, 6]);
    assert_eq!(shape(|x| x.matmul_transposed(x)), [2, 8, 6, 6]);
    built(|g| {
        let x = image(g);
        assert_eq!((x.dims(), x.width()), ([2, 8, 6, 4], 4));
        x
    });
}

#[test]
fn embeddings() {
    let (graph, shape, state) = built(|g| {
        let ids = g.tokens("ids", [2, 5], 9);
        ids.embedding("words", [9, 12]).add_positions(g.embedding("deep.positions", Table::new(7, 12)))
    });
    assert_eq!(shape, [2, 5, 12]);
    assert_eq!(state, ["words.weight[9, 12]", "deep.positions.weight[7, 12]"]);
    let expected = ["embedding@words", "slice@deep.positions", "add@deep.positions", "mse@"];
    assert_eq!(ops(&graph), expected, "nodes belong to the table's module");
}

#[test]
fn attention() {
    let options = Attention::heads(3).causal().dropout(0.1);
    let (graph, shape, _) = built(|g| {
        let q = sequence(g);
        let kv = g.input("other", [2, 9, 12]);
        q.attention(kv, kv, Attention::heads(4)).linear("qkv", 36).packed_attention(options)
    });
    assert_eq!(shape, [2, 5, 12]);
    let text = graph.to_text();
    assert!(text.contains("\"causal\":true") && text.contains("\"stream\":2"), "{text}");
    let (_, shape, state) = built(|g| sequence(g).self_attention("attn", options));
    assert_eq!(shape, [2, 5, 12]);
    let expected = [
        "attn.in_proj_weight[36, 12]",
        "attn.in_proj_bias[36]",
        "attn.out_proj.weight[12, 12]",
        "attn.out_proj.bias[12]",
    ];
    assert_eq!(state, expected);
}

#[test]
fn blocks() {
    let n_parameters = |graph: &Graph| graph.n_parameters();
    let layer = EncoderLayer::new(3, 20).dropout(0.1);
    let (graph, shape, _) = built(|g| sequence(g).encoder_layer("layer", layer));
    assert_eq!((shape, n_parameters(&graph)), (vec![2, 5, 12], 4 * 12 * 13 + 12 * 20 * 2 + 32 + 4 * 12));
    assert!(!graph.to_text().contains("\"causal\":true"));
    let (graph, _, _) = built(|g| sequence(g).encoder_layer("layer", layer.causal()));
    assert!(graph.to_text().contains("\"causal\":true"));

    let (graph, shape, state) = built(|g| sequence(g).decoder_layer("h", DecoderLayer::new(3, 48).depth(2)));
    assert_eq!((shape, n_parameters(&graph)), (vec![2, 5, 12], 12 * 12 * 12 + 2 * 12 + 2 * 4));
    assert!(state.contains(&"h.attn.q_norm.weight[4]".to_owned()), "{state:?}");
    let joining = graph.sources.iter().find(|s| s.name == "h.attn.o_proj.weight").unwrap();
    assert_eq!(joining.init, Init::Normal(0.01));

    let (graph, shape, state) = built(|g| image(g).residual("a", Residual::basic(4)));
    assert_eq!(shape, [2, 8, 6, 4]);
    assert!(!state.iter().any(|name| name.contains("downsample")), "{state:?}");
    assert_eq!(ops(&graph)[..2], ["conv2d@a.conv1", "batch_norm@a.bn1"]);
    let (_, shape, state) = built(|g| image(g).residual("a", Residual::bottleneck(3).stride(2)));
    assert_eq!(shape, [2, 4, 3, 12]);
    assert!(state.contains(&"a.downsample.0.weight[12, 1, 1, 4]".to_owned()), "{state:?}");
}

#[test]
fn ops_and_state_of_ones_own() {
    let (graph, shape, state) = built(|g| {
        let x = sequence(g);
        let weight = g.parameter("weight", [12], Init::Constant(1.0));
        let [y, rstd] = g.apply_all(remat::op::rms_norm::RmsNorm { eps: 1e-6 }, &[x, weight]);
        assert_eq!(rstd.shape(), [2, 5]);
        let seen = g.buffer("seen", [2, 5], Init::Constant(0.0));
        g.apply(remat::op::running_update::RunningUpdate { momentum: 0.1, correction: 1.0 }, &[seen, rstd]);
        let stream = g.random_stream();
        y.apply(remat::op::dropout::Dropout { p: 0.5, stream })
    });
    assert_eq!((shape, state), (vec![2, 5, 12], vec!["weight[12]".into(), "seen[2, 5]".into()]));
    assert_eq!(ops(&graph), ["rms_norm@", "running_update@", "dropout@", "mse@"]);
    assert_eq!(graph.values[graph.nodes.iter().nth(1).unwrap().outputs[0]].kind, Kind::Buffer);
}
