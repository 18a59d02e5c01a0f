//! The report's rows against what other stages say about the same step.

use remat::model::{Options, find};
use remat::pipeline::{Costs, Fit, Prepared, Program, compile, prepare};
use remat::profile::Machine;
use remat::report::{self, Decision, Timeline};
use remat_plan::{Bytes, Request};

fn prepared(name: &str, options: Options) -> Prepared {
    let info = find(name).expect("a model of the table");
    let forward = info.build(&options).expect("options within their ranges").into_graph();
    prepare(&forward, &info.optimizer, Costs::Analytic(Machine::nominal(1)), |_, _| {}).expect("a valid step")
}

fn small_resnet() -> Prepared {
    prepared("resnet18", Options::new().with("batch", 2).with("image", 64))
}

fn small_gpt() -> Prepared {
    let options = Options::new().with("seq", 32).with("dim", 32).with("heads", 2).with("vocab", 64);
    prepared("gpt", options.with("layers", 3).with("dropout", 0.1))
}

/// A program within the floor and `percent` of what lies between it and the peak without recomputation.
fn planned(prepared: &Prepared, percent: u64) -> Program {
    let (floor, peak) = (prepared.floor.bytes.0, prepared.keep_all.peak().0);
    let budget = Bytes(floor + (peak - floor) * percent / 100);
    match compile(prepared, "mu-two", &Request::new(budget)).expect("no checker complains") {
        Fit::Fits(program) => *program,
        Fit::Refused(refusal) => panic!("{refusal}"),
    }
}

#[test]
fn the_timeline_adds_up_to_the_layout_and_to_the_plan() {
    for prepared in [small_resnet(), small_gpt()] {
        for program in [prepared.keep_all.clone(), planned(&prepared, 60)] {
            let timeline = Timeline::predicted(&program, &prepared.seconds);
            assert_eq!(timeline.peak().unwrap().1, program.layout().used);
            let n_recomputes = timeline.runs.iter().filter(|run| run.recompute).count();
            assert_eq!(n_recomputes, program.schedule().n_recomputes());
            let cost: f64 = timeline.runs.iter().map(|run| run.seconds).sum();
            assert!((cost / program.plan().cost - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn lives_of_the_timeline_never_share_an_address() {
    let prepared = small_resnet();
    for program in [prepared.keep_all.clone(), planned(&prepared, 60)] {
        let timeline = Timeline::predicted(&program, &prepared.seconds);
        for at in 0..timeline.runs.len() {
            let mut live = timeline.live_at(at);
            live.retain(|life| life.bytes > Bytes(0));
            live.sort_by_key(|life| life.offset);
            for pair in live.windows(2) {
                assert!(pair[0].offset + pair[0].bytes.0 <= pair[1].offset, "{pair:?} at run {at}");
            }
        }
    }
}

#[test]
fn activations_are_idle_between_forward_and_backward_and_cost_at_least_their_own_node() {
    let prepared = small_resnet();
    let rows = report::activations(&prepared);
    assert!(rows.len() > 30);
    for row in &rows {
        assert!(row.creation_rank <= row.last_fw_use_rank && row.last_fw_use_rank < row.first_bw_use_rank);
        assert!(row.first_bw_use_rank <= row.last_bw_use_rank);
        assert!(row.recomp_memory_bytes >= row.median_mem_size_bytes, "{row:?}");
        assert!(row.recomp_time_s > 0.0 && row.inactive_time_s >= 0.0, "{row:?}");
    }
    let nodes = report::nodes(&prepared);
    assert_eq!(nodes.len(), prepared.problem.node_of.len());
    let most = nodes.iter().map(|node| node.median_peak_mem_bytes).max().unwrap();
    assert_eq!(most, prepared.keep_all.layout().used);
}

#[test]
fn decisions_name_exactly_what_the_schedule_makes_twice() {
    let prepared = small_gpt();
    assert!(
        report::decisions(&prepared, &prepared.keep_all).iter().all(|row| row.decision == Decision::Retained)
    );
    let program = planned(&prepared, 60);
    let dropped: Vec<String> = report::decisions(&prepared, &program)
        .into_iter()
        .filter(|row| row.decision == Decision::Recompute)
        .map(|row| row.activation_name)
        .collect();
    assert!(!dropped.is_empty());
    let timeline = Timeline::predicted(&program, &prepared.seconds);
    for name in dropped {
        assert!(timeline.lives.iter().any(|life| life.recompute && life.value == name), "{name}");
    }
}

#[test]
fn traces_are_json_with_one_slice_per_run_and_a_counter() {
    let prepared = small_gpt();
    let timeline = Timeline::predicted(&planned(&prepared, 60), &prepared.seconds);
    let trace: serde_json::Value = serde_json::from_str(&report::chrome_trace(&timeline, "gpt")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((count("X"), count("C")), (timeline.runs.len(), timeline.runs.len()));
    let counted = |event: &serde_json::Value| -> u64 {
        event["args"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum()
    };
    let most = events.iter().filter(|event| event["ph"] == "C").map(counted).max().unwrap();
    assert_eq!(most, timeline.peak().unwrap().1.0);
}

#[test]
fn a_checkpointed_module_is_recomputed_and_only_it() {
    let prepared = small_resnet();
    let program = remat::pipeline::checkpoint(&prepared, &["layer1.0", "layer2"]).unwrap();
    assert!(program.peak() < prepared.keep_all.peak());
    let timeline = Timeline::predicted(&program, &prepared.seconds);
    let again: Vec<&str> =
        timeline.runs.iter().filter(|run| run.recompute).map(|run| run.module.as_str()).collect();
    assert!(again.iter().any(|module| module.starts_with("layer1.0")), "{again:?}");
    assert!(
        again.iter().all(|module| module.starts_with("layer1.0") || module.starts_with("layer2")),
        "{again:?}"
    );
    let message = remat::pipeline::checkpoint(&prepared, &["layer9"]).unwrap_err().to_string();
    assert!(message.contains("`layer9`"), "{message}");
}
