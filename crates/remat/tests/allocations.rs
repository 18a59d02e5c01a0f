//! A step takes its memory from the arena: whatever else it allocates is counted here, on all threads, and shown with the
//! stack that asked for it.

use remat::exec::Engine;
use remat::model::{self, Options};
use remat::op::{MicroBatch, Run};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, prepare};
use remat::profile::Machine;
use remat::train::{Batch, Batches, Part, Session, Synthetic};
use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The system's allocator, watched.
struct Watched {
    is_watching: AtomicBool,
    /// Size and stack of every allocation.
    seen: Mutex<Vec<String>>,
    /// Bytes that are allocated now, and the most there were.
    now: AtomicUsize,
    peak: AtomicUsize,
}

thread_local! {
    /// Looking at an allocation allocates, and that must not be looked at.
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
}

impl Watched {
    fn look(&self, size: usize) {
        // A panic prints its own stack under the same lock; looking at that would never end.
        if !self.is_watching.load(Relaxed) || std::thread::panicking() || IS_LOOKING.replace(true) {
            return;
        }
        let before = self.now.fetch_add(size, Relaxed);
        self.peak.fetch_max(before + size, Relaxed);
        let stack = Backtrace::force_capture();
        self.seen.lock().expect("nobody panics while looking").push(format!("{size} bytes\n{stack}"));
        IS_LOOKING.set(false);
    }
}

// SAFETY: everything is passed on to the system's allocator; looking touches no memory of others.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.look(layout.size());
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if self.is_watching.load(Relaxed) && !IS_LOOKING.get() {
            // What was allocated before the watch began may go below zero; it is not part of the question.
            self.now.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(layout.size()))).ok();
        }
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched {
    is_watching: AtomicBool::new(false),
    seen: Mutex::new(Vec::new()),
    now: AtomicUsize::new(0),
    peak: AtomicUsize::new(0),
};

/// What exists outside the arena at any moment of a step, on both threads together: the list of a node's buffers, sizes
/// of a kernel's operands, now and then a block of the thread pool's queue, and the scratch in which a thread packs operands
/// of products (about 600 KiB, once), when it meets its first large one after the others. It does not grow with the model.
const MAX_OUTSIDE: usize = 2 << 20;

/// One test, because the allocator serves the whole process.
#[test]
fn a_step_after_the_first_holds_next_to_nothing_outside_the_arena() {
    let sizes: [(&str, &[(&str, usize)]); 4] = [
        ("resnet18", &[("batch", 2), ("image", 64), ("classes", 10)]),
        ("unet", &[("batch", 1), ("image", 32), ("width", 8)]),
        ("transformer", &[("batch", 2), ("seq", 32), ("dim", 64), ("layers", 2), ("vocab", 500)]),
        ("gpt", &[("seq", 64), ("dim", 64), ("layers", 2), ("vocab", 500)]),
    ];
    for (name, sizes) in sizes {
        let options = sizes.iter().fold(Options::new(), |options, &(name, value)| options.with(name, value));
        let forward =
            model::find(name).expect("a known model").build(&options).expect("valid options").into_graph();
        let optimizer = Optimizer::adam(1e-3);
        let costs = Costs::Analytic(Machine::nominal(2));
        let prepared = prepare(&forward, &optimizer, costs, |_, _| {}).expect("a valid step");
        let batches = Box::new(Synthetic { seed: 1 });
        let mut session = Session::new(prepared.keep_all, batches, 1, 2).expect("memory");
        for _ in 0..2 {
            session.step(None).expect("synthetic data");
        }
        // A step may write over its batch; the session fills it again, and so must we.
        let mut batch = Batch::new(3, Part::Training, 1, session.executor_mut().batch_mut());
        Synthetic { seed: 1 }.fill(&mut batch).expect("synthetic data");
        let run = Run { seed: 1, step: 3, learning_rate: 1e-3, micro: MicroBatch::ONLY };
        [&ALLOCATOR.now, &ALLOCATOR.peak].iter().for_each(|n| n.store(0, Relaxed));
        ALLOCATOR.is_watching.store(true, Relaxed);
        session.executor_mut().step(&run, None).expect("no store is involved");
        ALLOCATOR.is_watching.store(false, Relaxed);

        let seen = std::mem::take(&mut *ALLOCATOR.seen.lock().expect("nobody panics while looking"));
        let (n, outside) = (seen.len(), ALLOCATOR.peak.load(Relaxed));
        println!("{name}: {n} allocations, at most {outside} bytes at once");
        let shown = seen.iter().take(3).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(outside <= MAX_OUTSIDE, "{name}: {outside} bytes outside the arena:\n{shown}");
    }
}
