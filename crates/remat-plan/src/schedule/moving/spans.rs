//! Which values of a sequence to move, so that its memory is within the budget.
//!
//! A *span* is a stretch between two consecutive uses of a value over which it could be in a store. State has the stretch before its
//! first use and after the last use of what carries it, decided together. Where memory is above the budget, the spans
//! over that step are moved, the largest score first; in the end spans are kept again where there is room. Time:
//! O((spans + slots) * log slots), and the length of the spans that are kept again or go to a store of limited size.

use super::Moving;
use super::cover::Cover;
use super::peaks::Peaks;
use crate::schedule::flat::NONE;

/// One span: the slots `from..to` of the sequence over which the value is not in memory when it is moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) value: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// The slot from which on the value is in memory before.
    since: u32,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    /// Comes back for the slot `to`.
    Use,
    /// An input that rests in a store until its first use. What carries it rests there from this slot on.
    State(u32),
}

/// The spans of a sequence, and which of them are moved where.
pub(crate) struct Spans<'a> {
    moving: &'a Moving<'a>,
    budget: i64,
    sequence: &'a [u32],
    /// The memory of each slot.
    pub(crate) memory: Vec<i64>,
    /// The computing time before each slot.
    before: Vec<f64>,
    pub(crate) list: Vec<Span>,
    /// The store to which each span is moved, or `NONE`.
    store: Vec<u32>,
    /// Spans that are not to be moved.
    pub(crate) is_barred: Vec<bool>,
    /// How many times the duration of its copies a value is still or already in memory at the ends of a moved span.
    margin: f64,
    /// The store that a value was last moved to, or `NONE`.
    home: Vec<u32>,
    /// What the channels have to do, and what each limited store holds at each slot.
    load: Vec<f64>,
    filled: Vec<Vec<i64>>,
}

impl<'a> Spans<'a> {
    /// The spans of a sequence without copies.
    pub(crate) fn new(moving: &'a Moving<'a>, sequence: &'a [u32], budget: i64) -> Spans<'a> {
        let flat = &moving.flat;
        let mut memory = vec![0; sequence.len()];
        flat.walk_back(sequence, &mut Vec::new(), |i, used, _| {
            memory[i] = used;
            true
        });
        let mut before = vec![0.0];
        before.extend(sequence.iter().scan(0.0, |sum, &n| {
            *sum += flat.cost[n as usize];
            Some(*sum)
        }));
        let is_limited = |s: usize| moving.problem.stores[s].capacity_bytes.is_some();
        let mut spans = Spans {
            moving,
            budget,
            sequence,
            memory,
            before,
            list: Vec::new(),
            store: Vec::new(),
            is_barred: Vec::new(),
            margin: 0.0,
            home: vec![NONE; moving.n_values],
            load: vec![0.0; moving.problem.channels.len()],
            filled: (0..moving.n_stores)
                .map(|s| if is_limited(s) { vec![0; sequence.len() + 1] } else { Vec::new() })
                .collect(),
        };
        spans.find();
        spans.store = vec![NONE; spans.list.len()];
        spans.is_barred = vec![false; spans.list.len()];
        spans
    }

    /// Lists all spans in one walk along the sequence.
    fn find(&mut self) {
        let flat = &self.moving.flat;
        // The slot after the last use of each value while it is in memory.
        let mut free_from: Vec<u32> =
            flat.producer.iter().map(|&producer| if producer == NONE { 0 } else { NONE }).collect();
        let mut since = vec![0; self.moving.n_values];
        let mut is_used = vec![false; self.moving.n_values];
        let mut state = vec![NONE; self.moving.n_values];
        for (i, &n) in self.sequence.iter().enumerate() {
            let i = i as u32;
            for &v in flat.inputs.get(n as usize).iter().filter(|&&v| self.moving.may_move(v)) {
                let from = free_from[v as usize];
                let is_first = !std::mem::replace(&mut is_used[v as usize], true);
                if is_first && from == 0 && self.may_rest(v) {
                    state[v as usize] = self.list.len() as u32;
                    self.list.push(Span { value: v, from: 0, to: i, since: 0, what: What::State(NONE) });
                } else if i > from || self.shared_before(v, from) > 0 {
                    let since = since[v as usize];
                    self.list.push(Span { value: v, from, to: i, since, what: What::Use });
                }
                free_from[v as usize] = i + 1;
            }
            for &v in flat.outputs.get(n as usize).iter().filter(|&&v| (v as usize) < self.moving.n_values) {
                free_from[v as usize] = i + 1;
                since[v as usize] = i;
            }
        }
        let end = self.sequence.len() as u32;
        for v in (0..self.moving.n_values as u32).filter(|&v| flat.is_output[v as usize]) {
            let from = free_from[v as usize];
            let carried = self.moving.carries[v as usize];
            if carried != NONE && state[carried as usize] != NONE {
                self.list[state[carried as usize] as usize].what = What::State(from);
            } else if carried == NONE
                && self.moving.may_move(v)
                && (from < end || self.shared_before(v, from) > 0)
            {
                let since = since[v as usize];
                self.list.push(Span { value: v, from, to: end, since, what: What::Use });
            }
        }
    }

    /// The bytes of an output that can take over the storage of a value if that leaves before slot `from`.
    fn shared_before(&self, v: u32, from: u32) -> i64 {
        let flat = &self.moving.flat;
        if from == 0 {
            return 0;
        }
        let pairs = flat.reuse.get(self.sequence[from as usize - 1] as usize);
        let shared = pairs.chunks_exact(2).filter(|pair| pair[0] == v);
        shared.map(|pair| flat.bytes[pair[1] as usize]).max().unwrap_or(0)
    }

    /// Whether an input may be in a store between steps.
    fn may_rest(&self, v: u32) -> bool {
        let output = self.moving.carried_by[v as usize];
        output != NONE && self.moving.rest_node[output as usize] != NONE
    }

    /// Moves spans until the memory is within the budget or nothing is left to move; the new sequence and the work.
    /// Memory is left for copies under way, `margin` times as long as they take, as far as the budget allows that.
    pub(crate) fn relieve(&mut self, cost_power: f64, margin: f64) -> (Vec<u32>, f64) {
        let mut work = 0.0;
        self.margin = margin;
        if margin > 0.0 {
            work += self.relieve_once(cost_power) + self.keep_again().1;
            self.margin = 0.0;
        }
        loop {
            let n_moved = self.n_moved();
            let (sequence, serves) = self.moved_sequence();
            self.memory.fill(i64::MIN);
            let memory = &mut self.memory;
            self.moving.flat.walk_back(&sequence, &mut Vec::new(), |i, used, _| {
                if let Some(slot) = memory.get_mut(serves[i] as usize) {
                    *slot = (*slot).max(used);
                }
                true
            });
            work += 10.0 * sequence.len() as f64;
            if self.memory.iter().all(|&used| used <= self.budget) {
                if margin > 0.0 {
                    return (sequence, work);
                }
                let (n_kept, more) = self.keep_again();
                let sequence = if n_kept == 0 { sequence } else { self.moved_sequence().0 };
                return (sequence, work + more);
            }
            // Which outputs share storage is an estimate, so what was enough may not be.
            work += self.relieve_once(cost_power);
            if self.n_moved() == n_moved {
                return (sequence, work);
            }
        }
    }

    fn n_moved(&self) -> usize {
        self.store.iter().filter(|&&store| store != NONE).count()
    }

    pub(crate) fn is_moved(&self, at: usize) -> bool {
        self.store[at] != NONE
    }

    /// Moves spans over the slots that are above the budget, the highest slot first.
    fn relieve_once(&mut self, cost_power: f64) -> f64 {
        let mut peaks = Peaks::new(&self.memory);
        if self.memory.is_empty() || peaks.highest().1 <= self.budget {
            return 0.0;
        }
        let mut cover = self.cover(cost_power);
        let mut work = 40.0 * (self.list.len() + self.memory.len()) as f64;
        loop {
            let (k, used) = peaks.highest();
            if used <= self.budget {
                peaks.write_to(&mut self.memory);
                return work;
            }
            while peaks.get(k) > self.budget {
                let is_open = |at: usize| self.store[at] == NONE && !self.is_barred[at];
                let Some(at) = cover.best(k, is_open) else { break };
                work += 100.0 + self.take(at, &mut peaks);
            }
            peaks.exclude(k);
            work += 40.0;
        }
    }

    /// The spans that could be moved over each slot, by score.
    fn cover(&self, cost_power: f64) -> Cover {
        let is_open = |at: &usize| self.store[*at] == NONE && !self.is_barred[*at];
        let open = (0..self.list.len()).filter(is_open);
        let mut ranked: Vec<(f64, usize)> =
            open.map(|at| (self.score(&self.list[at], cost_power), at)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut cover = Cover::new(self.memory.len());
        for (rank, &(_, at)) in ranked.iter().enumerate() {
            for (v, from, to) in self.stretches(&self.list[at]) {
                let away = self.away(v, from, to);
                cover.add(rank as u32, at as u32, away.start as usize..away.end as usize);
                if from > 0 && self.margin == 0.0 && self.shared_before(v, from) > 0 {
                    cover.add(rank as u32, at as u32, from as usize - 1..from as usize);
                }
            }
        }
        cover
    }

    /// What is away when a span is moved: values, each over a stretch of slots.
    fn stretches(&self, span: &Span) -> Vec<(u32, u32, u32)> {
        let mut stretches = vec![(span.value, span.from, span.to)];
        if let What::State(from) = span.what
            && from != NONE
        {
            let carrier = self.moving.carried_by[span.value as usize];
            stretches.push((carrier, from, self.sequence.len() as u32));
        }
        stretches
    }

    /// The slots at which a moved value is not in memory: a span less the time of its copies.
    fn away(&self, v: u32, from: u32, to: u32) -> std::ops::Range<u32> {
        if self.margin == 0.0 {
            return from..to;
        }
        let least = |costs: &mut dyn Iterator<Item = f64>| self.margin * costs.fold(f64::INFINITY, f64::min);
        let out = least(&mut self.moving.stores_of(v).map(|s| self.moving.out_cost(v, s)));
        let back = least(&mut self.moving.stores_of(v).map(|s| self.moving.back_cost(v, s)));
        let slots = &self.before[from as usize..to as usize];
        let (begin, end) = (self.before[from as usize], self.before[to as usize]);
        let is_state = |at: bool| at && self.moving.flat.producer[v as usize] == NONE;
        let left = if is_state(from == 0) { 0 } else { slots.partition_point(|&time| time < begin + out) };
        let right = if to as usize == self.sequence.len() {
            slots.len()
        } else {
            slots.partition_point(|&time| time < end - back)
        };
        from + left as u32..from + right.max(left) as u32
    }

    /// Time out of memory for the cost of the copies.
    fn score(&self, span: &Span, cost_power: f64) -> f64 {
        let v = span.value;
        let mut time = self.before[span.to as usize] - self.before[span.from as usize];
        if let What::State(from) = span.what
            && from != NONE
        {
            time += self.before[self.sequence.len()] - self.before[from as usize];
        }
        let cost = self.moving.stores_of(v).map(|s| self.moving.out_cost(v, s) + self.moving.back_cost(v, s));
        let cost = cost.fold(f64::INFINITY, f64::min);
        let per_byte = cost / self.moving.flat.bytes[v as usize] as f64;
        let least = 1e-9 * self.before[self.sequence.len()];
        (time.max(least) / per_byte.powf(cost_power)).min(f64::MAX)
    }

    /// Moves a span to the store that has the least to do; returns the work.
    fn take(&mut self, at: usize, peaks: &mut Peaks) -> f64 {
        let span = self.list[at];
        let v = span.value;
        let stores: Vec<u32> = self.moving.stores_of(v).filter(|&s| self.has_space(&span, s)).collect();
        let total = |s: u32| {
            let store = &self.moving.problem.stores[s as usize];
            let out = self.load[store.out.channel.index()] + self.moving.out_cost(v, s);
            let back = self.load[store.back.channel.index()] + self.moving.back_cost(v, s);
            out.max(back)
        };
        // Where the value was before it need not be copied to again.
        let best = match self.home[v as usize] {
            home if stores.contains(&home) => Some(home),
            _ => stores.into_iter().min_by(|&a, &b| total(a).total_cmp(&total(b))),
        };
        let Some(s) = best else {
            self.is_barred[at] = true;
            return 8.0;
        };
        let store = &self.moving.problem.stores[s as usize];
        if std::mem::replace(&mut self.home[v as usize], s) != s {
            self.load[store.out.channel.index()] += self.moving.out_cost(v, s);
        }
        self.load[store.back.channel.index()] += self.moving.back_cost(v, s);
        self.store[at] = s;
        let bytes = self.moving.flat.bytes[v as usize];
        let mut work = 8.0;
        for (from, to) in self.stored_over(&span) {
            if let Some(filled) = self.filled[s as usize].get_mut(from as usize..to as usize) {
                filled.iter_mut().for_each(|filled| *filled += bytes);
                work += f64::from(to - from);
            }
        }
        for (v, from, to) in self.stretches(&span) {
            let away = self.away(v, from, to);
            peaks.add(away.start as usize..away.end as usize, -bytes);
            if from > 0 && self.margin == 0.0 {
                peaks.add(from as usize - 1..from as usize, -self.shared_before(v, from));
            }
        }
        work
    }

    /// Adds the bytes of a kept span to the memory of its slots.
    fn add(&mut self, bytes: i64, v: u32, from: u32, to: u32) {
        let away = self.away(v, from, to);
        self.memory[away.start as usize..away.end as usize].iter_mut().for_each(|used| *used += bytes);
        if from > 0 && self.margin == 0.0 {
            self.memory[from as usize - 1] += self.shared_before(v, from);
        }
    }

    /// Keeps moved spans after all where there is memory for them, the largest first; their number, and the work.
    fn keep_again(&mut self) -> (usize, f64) {
        let mut moved: Vec<usize> = (0..self.list.len())
            .filter(|&at| self.store[at] != NONE && self.list[at].what == What::Use)
            .collect();
        moved.sort_by_key(|&at| (-self.moving.flat.bytes[self.list[at].value as usize], at));
        let (mut n_kept, mut work) = (0, 0.0);
        for at in moved {
            let Span { value, from, to, .. } = self.list[at];
            let bytes = self.moving.flat.bytes[value as usize];
            work += f64::from(to - from);
            let shared = self.shared_before(value, from);
            let fits_before = from == 0 || self.memory[from as usize - 1] + shared <= self.budget;
            let away = self.away(value, from, to);
            let slots = &self.memory[away.start as usize..away.end as usize];
            if fits_before && slots.iter().all(|used| used + bytes <= self.budget) {
                self.add(bytes, value, from, to);
                self.store[at] = NONE;
                n_kept += 1;
            }
        }
        (n_kept, work)
    }

    /// The slots at which a store holds the value of a moved span, from the earliest beginning of its copy out on.
    fn stored_over(&self, span: &Span) -> Vec<(u32, u32)> {
        let end = self.sequence.len() as u32;
        let mut slots = vec![(span.since, (span.to + 1).min(end + 1))];
        if let What::State(from) = span.what {
            let after = if from == NONE { 0 } else { from.saturating_sub(1) };
            slots.push((after, end + 1));
        }
        slots
    }

    fn has_space(&self, span: &Span, s: u32) -> bool {
        let capacity = self.moving.problem.stores[s as usize].capacity_bytes;
        capacity.is_none_or(|capacity| {
            let bytes = self.moving.flat.bytes[span.value as usize];
            self.stored_over(span).iter().all(|&(from, to)| {
                let filled = &self.filled[s as usize][from as usize..to as usize];
                filled.iter().all(|&filled| filled + bytes <= capacity.0 as i64)
            })
        })
    }

    /// The sequence with its copies, and for each slot of it the slot of the sequence without that it serves.
    fn moved_sequence(&self) -> (Vec<u32>, Vec<u32>) {
        let mut added: Vec<(u32, u32)> = Vec::new();
        let end = self.sequence.len() as u32;
        for (at, span) in self.list.iter().enumerate().filter(|(at, _)| self.store[*at] != NONE) {
            let node = self.moving.in_node(span.value, self.store[at]).expect("the store can hold the value");
            added.push((span.to, node));
            if let What::State(from) = span.what
                && from != NONE
            {
                let carrier = self.moving.carried_by[span.value as usize];
                added.push((end, self.moving.rest_node[carrier as usize]));
            }
        }
        added.sort_unstable();
        let mut sequence = Vec::with_capacity(self.sequence.len() + added.len());
        let mut serves = Vec::with_capacity(self.sequence.len() + added.len());
        let mut rest = added.into_iter().peekable();
        for slot in 0..=end {
            while let Some((_, node)) = rest.next_if(|&(to, _)| to == slot) {
                sequence.push(node);
                serves.push(slot.min(end.saturating_sub(1)));
            }
            if slot < end {
                sequence.push(self.sequence[slot as usize]);
                serves.push(slot);
            }
        }
        (sequence, serves)
    }
}
