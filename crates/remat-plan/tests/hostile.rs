//! Files made to hurt: time and memory of validator and checker are linear in the size of the input.

use remat_plan::{
    Fault, NodeId, Plan, Problem, ProblemError, ProblemFaultKind, SimulationError, Step, StoreId, ValueId,
    check, simulate, simulate_with,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts what is allocated.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The tests of this file run one at a time, since they share the counter.
static TURN: Mutex<()> = Mutex::new(());

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs something and demands that it took little memory beside its input, and little time.
fn frugal<T>(n_input_bytes: usize, run: impl FnOnce() -> T) -> T {
    let (begin, before) = (Instant::now(), IN_USE.load(Ordering::Relaxed));
    PEAK.store(before, Ordering::Relaxed);
    let result = run();
    let used = PEAK.load(Ordering::Relaxed) - before;
    assert!(
        used < 40 * n_input_bytes + (1 << 20),
        "{used} bytes of memory for {n_input_bytes} bytes of input"
    );
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    result
}

fn problem(name: &str, values: &str, node: &str) -> String {
    format!(
        r#"{{"schema":"remat.problem/1","name":"p","cost_unit":"s","fixed_bytes":0,"values":[{values}],"inputs":[0],"nodes":[{{"name":"{name}","op":"o","phase":"forward","cost":1,"workspace_bytes":0,{node},"recompute":false}}],"outputs":[]}}"#
    )
}

fn list(item: &str, n: usize) -> String {
    vec![item; n].join(",")
}

#[test]
fn many_faults_about_one_long_name_are_not_many_copies_of_it() {
    let _turn = TURN.lock().unwrap();
    let node = format!(r#""inputs":[{}],"outputs":[]"#, list("9", 60_000));
    let text = problem(&"n".repeat(60_000), r#"{"name":"x","bytes":1}"#, &node);
    let error = frugal(text.len(), || Problem::from_json(&text).unwrap_err());
    let message = frugal(text.len(), || error.to_string());
    assert!(message.starts_with("the problem has 60000 faults:\n  node 0 (nnn") && message.len() < 5_000);
    let ProblemError::Invalid { faults, .. } = error else { panic!("{error}") };
    assert_eq!(faults.len(), 1001);
    assert_eq!(faults[1000].kind, ProblemFaultKind::More { n: 59_000 });
}

#[test]
fn reuse_pairs_are_looked_up_and_not_searched_for() {
    let _turn = TURN.lock().unwrap();
    const N: usize = 40_000;
    let values = list(r#"{"name":"v","bytes":1}"#, N + 1);
    let outputs: Vec<String> = (1..=N).map(|v| v.to_string()).collect();
    let pairs: Vec<String> = (1..=N).rev().map(|v| format!("[0,{v}]")).collect();
    let (outputs, pairs) = (outputs.join(","), pairs.join(","));
    let text = problem("n", &values, &format!(r#""inputs":[0],"outputs":[{outputs}],"reuse":[{pairs}]"#));
    let problem = frugal(text.len(), || Problem::from_json(&text).unwrap());
    let frees: Vec<String> = (1..=N).map(|v| format!(r#"["free",{v}]"#)).collect();
    let plan = plan(&format!(r#"["compute",0],{},["free",0]"#, frees.join(",")), N as u64 + 1);
    let plan = Plan::from_json(&plan, &problem).unwrap();
    // The input dies with the step, so the last output lies in its storage.
    assert_eq!(
        frugal(text.len(), || check(&problem, &plan)),
        [Fault::WrongPeak { claimed: N as u64 + 1, measured: N as u128 }]
    );
}

fn plan(steps: &str, peak: u64) -> String {
    format!(
        r#"{{"schema":"remat.plan/1","problem":"p","planner":"x","status":"feasible","budget_bytes":99999999,"peak_bytes":{peak},"cost":1,"lower_bound":null,"steps":[{steps}]}}"#
    )
}

#[test]
fn many_faults_of_a_plan_are_counted() {
    let _turn = TURN.lock().unwrap();
    let text = problem(&"n".repeat(60_000), r#"{"name":"x","bytes":1}"#, r#""inputs":[0],"outputs":[]"#);
    let problem = Problem::from_json(&text).unwrap();
    let steps = list(r#"["compute",0]"#, 60_000);
    let plan = Plan::from_json(&plan(&steps, 1), &problem).unwrap();
    let faults = frugal(steps.len(), || check(&problem, &plan));
    // One run is allowed, all others are one fault each, and the cost is wrong.
    assert_eq!(faults.len(), 1001);
    assert_eq!(faults[1000], Fault::More { n: 59_000 });
    let message =
        frugal(text.len(), || faults.iter().map(|f| f.with_names(&problem).to_string()).collect::<String>());
    assert!(message.len() < 200_000, "{}", message.len());
}

/// The first id that a problem does not have is refused like any other, by the checker and by the simulator.
#[test]
fn ids_one_beyond_the_last_are_refused() {
    let _turn = TURN.lock().unwrap();
    let value = r#"{"name":"v","bytes":1}"#;
    let problem = problem("n", &list(value, 2), r#""inputs":[0],"outputs":[1]"#);
    let problem = Problem::from_json(&problem).unwrap();
    let whole = Plan::from_json(&plan(r#"["compute",0]"#, 2), &problem).unwrap();
    assert_eq!(check(&problem, &whole), []);
    let (node, value, store) = (NodeId(1), ValueId(2), StoreId(0));
    let beyond = [
        Step::Compute(node),
        Step::Free(value),
        Step::Out(value, store),
        Step::Out(ValueId(0), store),
        Step::In(ValueId(0), store),
        Step::Discard(ValueId(0), store),
    ];
    for step in beyond {
        let steps = vec![step, Step::Compute(NodeId(0))];
        assert_eq!(simulate(&problem, &steps), Err(SimulationError::NoSuchId { at: 0 }), "{step:?}");
        let plan = Plan { steps, ..whole.clone() };
        let faults = check(&problem, &plan);
        assert!(
            matches!(
                faults[..],
                [Fault::NoSuchNode { .. } | Fault::NoSuchValue { .. } | Fault::NoSuchStore { .. }]
            ),
            "{step:?}: {faults:?}"
        );
    }
    for (value, store) in [(value, store), (ValueId(0), store)] {
        let stored = [(value, store)];
        let error = simulate_with(&problem, &stored, &[Step::Compute(NodeId(0))]);
        assert_eq!(error, Err(SimulationError::NotCarried { value }));
        let plan = Plan { stored: stored.to_vec(), ..whole.clone() };
        assert!(check(&problem, &plan).contains(&Fault::StoredNotCarried { value }));
    }
    let moved = Problem::parse(include_str!("../../../fuzz/problems/moved.txt")).unwrap();
    let steps = [Step::Out(ValueId::new(moved.values.len()), store)];
    assert_eq!(simulate(&moved, &steps), Err(SimulationError::NoSuchId { at: 0 }));
}
