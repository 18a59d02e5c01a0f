//! Moves to and from stores, put into the steps of any plan by chance.
//!
//! Between two uses of a value lies a gap in which it may leave: a copy out, a free, a copy in and perhaps a discard, each
//! anywhere between the one before and the end of the gap. State may rest in a store instead: then it comes in before its first
//! use, and what replaces it goes out before the end.

use super::Choices;
use remat_plan::{Problem, Step, StoreId, ValueId};

/// Something that happens to a value. Positions count the steps before them.
#[derive(Clone, Copy)]
struct Event {
    before: usize,
    after: usize,
    what: What,
}

/// What happens to a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// It is made, or it is there at the start.
    Begins,
    /// A second copy of it is made, which dies at once.
    MadeAgain,
    Read,
    /// It is overwritten or freed.
    Ends,
    /// It is there at the end, as it must be.
    Lasts,
}

/// Steps with moves, and what rests in a store at the start.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Moved {
    pub(super) stored: Vec<(ValueId, StoreId)>,
    pub(super) steps: Vec<Step>,
}

/// The same steps with moves between them, about one in `one_in` possible ones.
pub(super) fn with_moves(problem: &Problem, steps: &[Step], choices: &mut Choices, one_in: usize) -> Moved {
    let events = events(problem, steps);
    let mut moves = Moves { added: Vec::new(), choices, n_steps: steps.len() };
    let mut stored = Vec::new();
    let mut rests = vec![false; problem.values.len()];
    for &(input, output) in &problem.carries {
        let of_input = &events[input.index()];
        let is_used = of_input.get(1).is_some_and(|event| event.what == What::Read);
        if problem.value(input).swap && is_used && moves.choices.once_in(one_in) {
            let store = StoreId::new(moves.choices.below(problem.stores.len()));
            stored.push((input, store));
            [input, output].iter().for_each(|v| rests[v.index()] = true);
            moves.rest((input, of_input), (output, &events[output.index()]), store);
        }
    }
    for value in problem.value_ids().filter(|&v| problem.value(v).swap && !rests[v.index()]) {
        // What was copied to a store stays there until it is discarded, and is not copied there again.
        let mut is_stored = None;
        for pair in events[value.index()].windows(2) {
            let is_gap = matches!(pair[0].what, What::Begins | What::Read | What::MadeAgain)
                && matches!(pair[1].what, What::Read | What::Lasts);
            if is_gap && moves.choices.once_in(one_in) {
                is_stored =
                    moves.leave(value, (pair[0].after, pair[1].before), is_stored, problem.stores.len());
            }
        }
    }
    moves.added.sort_by_key(|&(position, number, _)| (position, number));
    let mut added = moves.added.into_iter().peekable();
    let mut all = Vec::with_capacity(steps.len() + added.len());
    for position in 0..=steps.len() {
        while let Some((_, _, step)) = added.next_if(|next| next.0 == position) {
            all.push(step);
        }
        all.extend(steps.get(position));
    }
    Moved { stored, steps: all }
}

struct Moves<'c> {
    /// The position of the step that it goes before, its number among all that are added, and the step.
    added: Vec<(usize, usize, Step)>,
    choices: &'c mut Choices,
    n_steps: usize,
}

impl Moves<'_> {
    /// Puts steps in order anywhere from one position to another.
    fn add(&mut self, (from, to): (usize, usize), steps: &[Step]) {
        let mut at = from;
        for &step in steps {
            at += self.choices.below(to - at + 1);
            self.added.push((at, self.added.len(), step));
        }
    }

    /// A value leaves between two steps and comes back; returns the store that still has it afterwards.
    fn leave(
        &mut self,
        value: ValueId,
        gap: (usize, usize),
        is_stored: Option<StoreId>,
        n_stores: usize,
    ) -> Option<StoreId> {
        let (free, store) = (Step::Free(value), is_stored);
        let store = store.unwrap_or_else(|| StoreId::new(self.choices.below(n_stores)));
        let mut steps = vec![free, Step::In(value, store)];
        if is_stored.is_none() {
            steps.insert(0, Step::Out(value, store));
        }
        let is_discarded = self.choices.below(2) == 0;
        if is_discarded {
            steps.push(Step::Discard(value, store));
        }
        self.add(gap, &steps);
        (!is_discarded).then_some(store)
    }

    /// State rests in a store: it is copied in before its first use, and what replaces it is copied out.
    fn rest(
        &mut self,
        (input, of_input): (ValueId, &[Event]),
        (output, of_output): (ValueId, &[Event]),
        store: StoreId,
    ) {
        let first = of_input[1].before;
        self.add((0, first), &[Step::In(input, store)]);
        let last_use = |events: &[Event]| events[events.len() - 2].after;
        if input == output {
            self.add((last_use(of_input), self.n_steps), &[Step::Free(input)]);
        } else {
            let steps = [Step::Out(output, store), Step::Free(output)];
            self.add((last_use(of_output), self.n_steps), &steps);
        }
    }
}

/// What happens to every value, in order.
fn events(problem: &Problem, steps: &[Step]) -> Vec<Vec<Event>> {
    let mut events: Vec<Vec<Event>> = vec![Vec::new(); problem.values.len()];
    let mut live = vec![false; problem.values.len()];
    for &input in &problem.inputs {
        live[input.index()] = true;
        events[input.index()].push(Event { before: 0, after: 0, what: What::Begins });
    }
    for (at, step) in steps.iter().enumerate() {
        let mut add = |v: &ValueId, what: What| {
            events[v.index()].push(Event { before: at, after: at + 1, what });
        };
        match step {
            Step::Compute(node) => {
                let node = problem.node(*node);
                node.inputs.iter().for_each(|v| add(v, What::Read));
                for v in &node.consumes {
                    live[v.index()] = false;
                    add(v, What::Ends);
                }
                for v in &node.outputs {
                    let was_live = std::mem::replace(&mut live[v.index()], true);
                    add(v, if was_live { What::MadeAgain } else { What::Begins });
                }
            }
            Step::Free(v) => {
                live[v.index()] = false;
                add(v, What::Ends);
            }
            Step::Out(..) | Step::In(..) | Step::Discard(..) => {}
        }
    }
    let end = steps.len();
    for v in problem.value_ids().filter(|v| live[v.index()]) {
        events[v.index()].push(Event { before: end, after: end, what: What::Lasts });
    }
    events
}
