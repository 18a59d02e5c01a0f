//! Maximum flow (Dinic's algorithm) with real capacities.
//!
//! In: a directed graph with capacities. Out: the value of a flow, and the vertices that the source still reaches, which is
//! the source side of a minimum cut. Capacities are floating point numbers; residual capacities below a small
//! tolerance count as zero, so the flow may fall short of the maximum by that much but never exceeds it. Callers that need
//! a lower bound use the value of the flow, never the capacity of the cut.
//! Time: O(V^2 E) in the worst case, close to linear on the shallow graphs of this crate.
//!
//! Written by hand: capacities change between runs on the same graph, the flow must be a valid bound in floating point, and the
//! work is counted against the limits of a search. The libraries at hand rebuild the graph for each run, or want whole numbers.

use crate::schedule::limits::Limits;

/// A flow network; vertices are numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// Edges in pairs: edge e and its reverse e ^ 1.
    to: Vec<u32>,
    capacity: Vec<f64>,
    residual: Vec<f64>,
    /// Edges of each vertex, as one array after `seal`.
    start: Vec<u32>,
    edges: Vec<u32>,
    from: Vec<u32>,
    level: Vec<u32>,
    next: Vec<u32>,
    /// Edges looked at since the limits were last asked.
    work: u64,
}

/// Work per edge, in the unit of the limits.
const WORK_PER_EDGE: f64 = 1.0;
const UNREACHED: u32 = u32::MAX;

impl Network {
    /// Adds an edge and returns its number, with which its capacity can be changed.
    pub(crate) fn add_edge(&mut self, from: u32, to: u32, capacity: f64) -> usize {
        let e = self.to.len();
        self.from.extend([from, to]);
        self.to.extend([to, from]);
        self.capacity.extend([capacity, 0.0]);
        e
    }

    pub(crate) fn set_capacity(&mut self, edge: usize, capacity: f64) {
        self.capacity[edge] = capacity;
    }

    /// Groups the edges by vertex; no edges are added afterwards.
    pub(crate) fn seal(&mut self, n_vertices: usize) {
        self.start = vec![0; n_vertices + 1];
        for &v in &self.from {
            self.start[v as usize + 1] += 1;
        }
        for v in 0..n_vertices {
            self.start[v + 1] += self.start[v];
        }
        let mut place = self.start.clone();
        self.edges = vec![0; self.from.len()];
        for (e, &v) in self.from.iter().enumerate() {
            self.edges[place[v as usize] as usize] = e as u32;
            place[v as usize] += 1;
        }
        self.level = vec![UNREACHED; n_vertices];
        self.next = vec![0; n_vertices];
    }

    /// The value of a maximum flow from `source` to `sink`, up to the tolerance; nothing when a limit is reached.
    pub(crate) fn max_flow(
        &mut self,
        source: u32,
        sink: u32,
        tolerance: f64,
        limits: &mut Limits,
    ) -> Option<f64> {
        self.residual.clear();
        self.residual.extend_from_slice(&self.capacity);
        let mut total = 0.0;
        while self.levels(source, sink, tolerance) {
            self.next.copy_from_slice(&self.start[..self.level.len()]);
            total += self.blocking_flow(source, sink, tolerance);
            let work = std::mem::take(&mut self.work) as f64;
            if !limits.spend(work * WORK_PER_EDGE) {
                return None;
            }
        }
        Some(total)
    }

    /// Whether the source reaches a vertex in the residual network of the last flow.
    pub(crate) fn is_reached(&self, vertex: u32) -> bool {
        self.level[vertex as usize] != UNREACHED
    }

    /// Breadth-first distances from the source; says whether the sink is reached.
    fn levels(&mut self, source: u32, sink: u32, tolerance: f64) -> bool {
        self.level.fill(UNREACHED);
        self.level[source as usize] = 0;
        let mut queue = std::collections::VecDeque::from([source]);
        while let Some(v) = queue.pop_front() {
            for k in self.start[v as usize]..self.start[v as usize + 1] {
                let e = self.edges[k as usize] as usize;
                let w = self.to[e] as usize;
                self.work += 1;
                if self.residual[e] > tolerance && self.level[w] == UNREACHED {
                    self.level[w] = self.level[v as usize] + 1;
                    queue.push_back(w as u32);
                }
            }
        }
        self.level[sink as usize] != UNREACHED
    }

    /// Sends flow along shortest paths until each is blocked: depth first with an explicit path of edges.
    fn blocking_flow(&mut self, source: u32, sink: u32, tolerance: f64) -> f64 {
        let mut total = 0.0;
        let mut path: Vec<u32> = Vec::new();
        let mut v = source;
        loop {
            if v == sink {
                let amount = path.iter().map(|&e| self.residual[e as usize]).fold(f64::INFINITY, f64::min);
                total += amount;
                let mut cut_at = 0;
                for (i, &e) in path.iter().enumerate().rev() {
                    self.residual[e as usize] -= amount;
                    self.residual[e as usize ^ 1] += amount;
                    if self.residual[e as usize] <= tolerance {
                        cut_at = i;
                    }
                }
                v = self.from[path[cut_at] as usize];
                path.truncate(cut_at);
                continue;
            }
            let end = self.start[v as usize + 1];
            let mut advanced = false;
            while self.next[v as usize] < end {
                let e = self.edges[self.next[v as usize] as usize] as usize;
                let w = self.to[e];
                self.work += 1;
                if self.residual[e] > tolerance && self.level[w as usize] == self.level[v as usize] + 1 {
                    path.push(e as u32);
                    v = w;
                    advanced = true;
                    break;
                }
                self.next[v as usize] += 1;
            }
            if !advanced {
                let Some(e) = path.pop() else { return total };
                v = self.from[e as usize];
                self.next[v as usize] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_equals_the_smallest_cut() {
        let mut network = Network::default();
        for (a, b, c) in [(0, 1, 3.0), (0, 2, 2.5), (1, 2, 1.0), (1, 3, 2.0), (2, 3, 4.0)] {
            network.add_edge(a, b, c);
        }
        network.seal(4);
        assert_eq!(network.max_flow(0, 3, 1e-12, &mut Limits::of_work(1e3)), Some(5.5));
        assert!(network.is_reached(0) && !network.is_reached(1));
        assert_eq!(network.max_flow(0, 3, 1e-12, &mut Limits::of_work(3.0)), None);
    }
}
