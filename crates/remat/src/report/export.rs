//! The timeline in the formats of other people's viewers.
//!
//! [`chrome_trace`] is JSON for Perfetto and `chrome://tracing`: one slice per run and a memory counter, and with stores a
//! track for each channel.
//! [`memory_snapshot`] is what PyTorch's `memory_viz` page and `torch.cuda._memory_viz` open: a pickle with one
//! segment, our arena, and an event for every buffer that begins or ends, at its real address.

use super::{Life, Timeline};
use crate::graph::Kind;
use remat_plan::Phase;
use serde_json::{Value as Json, json};

/// Microseconds, the unit of the trace format.
const MICRO: f64 = 1e6;

/// The runs as slices of three tracks (forward, backward, optimizer) and memory as a counter stacked by kind.
/// Recomputes are on the track of the phase in which they run, under their own category.
pub fn chrome_trace(timeline: &Timeline, name: &str) -> String {
    let mut events = vec![json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": name}})];
    for (track, what) in [(1, "forward"), (2, "backward"), (3, "optimizer")] {
        events
            .push(json!({"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": what}}));
    }
    let by_kind: Vec<(Kind, Vec<_>)> =
        Kind::ALL.iter().map(|&kind| (kind, timeline.bytes_where(|life| life.kind == kind))).collect();
    let mut track = 1;
    let starts = timeline.starts();
    for (at, run) in timeline.runs.iter().enumerate() {
        let now = starts[at];
        if !run.recompute {
            track = match run.phase {
                Phase::Forward => 1,
                Phase::Backward => 2,
                Phase::Optimizer => 3,
            };
        }
        let category = if run.recompute { "recompute" } else { "run" };
        events.push(json!({
            "ph": "X", "pid": 1, "tid": track, "ts": now * MICRO, "dur": run.seconds * MICRO,
            "name": run.op, "cat": category,
            "args": {"node": run.node, "module": run.module, "recompute": run.recompute, "rank": at},
        }));
        let mut memory = serde_json::Map::new();
        for (kind, bytes) in &by_kind {
            memory.insert(kind.name().to_owned(), bytes[at].0.into());
        }
        memory.insert("workspace".to_owned(), run.workspace_bytes.0.into());
        events.push(json!({"ph": "C", "pid": 1, "ts": now * MICRO, "name": "memory", "args": memory}));
    }
    copy_events(timeline, &mut events);
    json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string()
}

/// One track for the waits of the program and one for each direction of each store, as planned; measured copies are on
/// tracks of a second process, which viewers draw below.
fn copy_events(timeline: &Timeline, events: &mut Vec<Json>) {
    if timeline.copies.is_empty() {
        return;
    }
    const WAITS: usize = 4;
    const PLANNED: usize = 1;
    const MEASURED: usize = 2;
    let name_of = |process: usize, track: usize, name: &str| json!({"ph": "M", "pid": process, "tid": track, "name": "thread_name", "args": {"name": name}});
    events.push(name_of(PLANNED, WAITS, "waits for copies"));
    for wait in &timeline.waits {
        events.push(json!({
            "ph": "X", "pid": PLANNED, "tid": WAITS, "ts": wait.start * MICRO, "dur": wait.seconds * MICRO,
            "name": format!("wait for {}", wait.value), "cat": "wait", "args": {"value": wait.value},
        }));
    }
    if timeline.copies.iter().any(|copy| copy.measured.is_some()) {
        let args = json!({"name": "copies, measured"});
        events.push(json!({"ph": "M", "pid": MEASURED, "name": "process_name", "args": args}));
    }
    let mut channels: Vec<String> = Vec::new();
    for copy in &timeline.copies {
        let channel = copy.channel();
        let known = channels.iter().position(|name| *name == channel);
        let number = known.unwrap_or(channels.len());
        let times = [(PLANNED, Some(copy.planned)), (MEASURED, copy.measured)];
        for (process, times) in times {
            let Some((start, end)) = times else { continue };
            if known.is_none() {
                events.push(name_of(process, WAITS + 1 + number, &channel));
            }
            events.push(json!({
                "ph": "X", "pid": process, "tid": WAITS + 1 + number, "ts": start * MICRO,
                "dur": (end - start) * MICRO, "name": copy.value, "cat": copy.way,
                "args": {"value": copy.value, "store": copy.store, "bytes": copy.bytes.0},
            }));
        }
        if known.is_none() {
            channels.push(channel);
        }
    }
}

/// The buffers of the arena over the step, as a pickled memory snapshot.
pub fn memory_snapshot(timeline: &Timeline, arena_bytes: u64) -> Vec<u8> {
    let last = timeline.runs.len().saturating_sub(1);
    // At one point of time ends come before begins: storage that is handed over ends and begins at one address.
    let mut events: Vec<(usize, bool, &Life)> = Vec::new();
    for life in timeline.lives.iter().filter(|life| life.bytes.0 > 0) {
        events.push((life.start, true, life));
        if life.end < last {
            events.push((life.end + 1, false, life));
        }
    }
    events.sort_by_key(|&(at, begins, life)| (at, begins, life.offset));
    let event = |&(at, begins, life): &(usize, bool, &Life)| {
        json!({
            "action": if begins { "alloc" } else { "free_completed" },
            "addr": life.offset, "size": life.bytes.0, "stream": 0, "time_us": at,
            "frames": frames(timeline, life),
        })
    };
    let trace: Vec<Json> = events.iter().map(event).collect();
    let snapshot = json!({
        "segments": [{
            "address": 0, "total_size": arena_bytes, "stream": 0, "device": 0, "segment_type": "large",
            "allocated_size": arena_bytes, "active_size": arena_bytes, "requested_size": arena_bytes,
            "frames": [], "blocks": blocks_at_end(timeline, last, arena_bytes),
        }],
        "device_traces": [trace],
    });
    pickle(&snapshot)
}

/// The viewer shows a stack; ours is the value, its module and the run that made it.
fn frames(timeline: &Timeline, life: &Life) -> Json {
    let maker = timeline.runs.get(life.start).map_or("", |run| run.node.as_str());
    let what = if life.recompute { "recomputed by" } else { "made by" };
    let name = if life.module.is_empty() {
        format!("{} ({})", life.value, life.kind.name())
    } else {
        format!("{} ({}, {what} {maker})", life.value, life.kind.name())
    };
    json!([{"name": name, "filename": life.module, "line": life.start}])
}

/// The arena at the end of the step as a row of blocks without holes.
fn blocks_at_end(timeline: &Timeline, last: usize, arena_bytes: u64) -> Vec<Json> {
    let mut live: Vec<&Life> = timeline.live_at(last);
    live.retain(|life| life.bytes.0 > 0);
    live.sort_by_key(|life| life.offset);
    let mut blocks = Vec::new();
    let mut at = 0;
    let gap = |from: u64, to: u64| json!({"size": to - from, "requested_size": to - from, "address": from, "state": "inactive", "frames": []});
    for life in live {
        if life.offset > at {
            blocks.push(gap(at, life.offset));
        }
        blocks.push(json!({
            "size": life.bytes.0, "requested_size": life.bytes.0, "address": life.offset,
            "state": "active_allocated", "frames": frames(timeline, life),
        }));
        at = at.max(life.offset + life.bytes.0);
    }
    if arena_bytes > at {
        blocks.push(gap(at, arena_bytes));
    }
    blocks
}

/// Python's pickle, protocol 2, of the JSON types. Lists and dictionaries are filled in small pieces, as Python does:
/// readers put each piece on a stack.
fn pickle(value: &Json) -> Vec<u8> {
    let mut out = vec![0x80, 2];
    push(value, &mut out);
    out.push(b'.');
    out
}

const PIECE: usize = 500;

fn push(value: &Json, out: &mut Vec<u8>) {
    match value {
        Json::Null => out.push(b'N'),
        Json::Bool(true) => out.push(0x88),
        Json::Bool(false) => out.push(0x89),
        Json::String(text) => push_text(text, out),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => push_whole(whole, out),
            None => {
                out.push(b'G');
                out.extend(number.as_f64().unwrap_or(f64::NAN).to_be_bytes());
            }
        },
        Json::Array(items) => {
            out.push(b']');
            for piece in items.chunks(PIECE) {
                out.push(b'(');
                piece.iter().for_each(|item| push(item, out));
                out.push(b'e');
            }
        }
        Json::Object(entries) => {
            out.extend(b"}(");
            for (key, entry) in entries {
                push_text(key, out);
                push(entry, out);
            }
            out.push(b'u');
        }
    }
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'X');
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

fn push_whole(whole: i64, out: &mut Vec<u8>) {
    match i32::try_from(whole) {
        Ok(small) => {
            out.push(b'J');
            out.extend(small.to_le_bytes());
        }
        Err(_) => {
            out.extend([0x8a, 8]);
            out.extend(whole.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pickles_are_those_of_python() {
        // python3 -c "import pickle; print(pickle.loads(bytes))" of these bytes gives the JSON back.
        let value = json!({"a": [1, -2, 1_i64 << 40, null, true, 0.5], "b": {}});
        let bytes = pickle(&value);
        assert_eq!(&bytes[..2], [0x80, 2]);
        assert_eq!(bytes.last(), Some(&b'.'));
        let expected: &[u8] = b"}(X\x01\0\0\0a](J\x01\0\0\0J\xfe\xff\xff\xff\x8a\x08\0\0\0\0\0\x01\0\0N\x88G\x3f\xe0\0\0\0\0\0\0eX\x01\0\0\0b}(uu";
        assert_eq!(&bytes[2..bytes.len() - 1], expected);
    }
}
