//! A step that can run: nothing but this stage makes one, and only from what its checkers have passed.

use crate::ids::ValueId;
use crate::layout::Layout;
use crate::rewrite::Schedule;
use crate::step::Roles;
use crate::store::{Kind, Setup};
use remat_plan::{Bytes, Plan};

/// A step that fits: what to run, where everything lies, and what its values are for.
///
/// Executors pass the addresses in it to kernels without checking them again. So the parts cannot be changed, and
/// only a schedule and a layout that their checkers have passed become a program:
///
/// ```compile_fail,E0616
/// fn move_the_first_value(program: &mut remat::pipeline::Program) {
///     program.layout.offset = Default::default();
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    roles: Roles,
    plan: Plan,
    schedule: Schedule,
    layout: Layout,
    stores: Vec<Setup>,
}

impl Program {
    /// Puts together what was checked: `plan` carried out is `schedule`, which `layout` lays out. It uses the first of
    /// `stores`, as many as the layout has.
    pub(super) fn of_checked(
        roles: Roles,
        plan: Plan,
        schedule: Schedule,
        layout: Layout,
        stores: &[Setup],
    ) -> Program {
        let stores = stores[..layout.stores.len()].to_vec();
        Program { roles, plan, schedule, layout, stores }
    }

    /// The stores that it uses; their sizes are in the layout.
    pub fn stores(&self) -> &[Setup] {
        &self.stores
    }

    /// Memory of the host that its stores take, beside the peak.
    pub fn host_bytes(&self) -> Bytes {
        let sizes = self.stores.iter().zip(&self.layout.stores);
        sizes.filter(|(setup, _)| setup.kind == Kind::Host).map(|(_, &size)| size).sum()
    }

    /// The same program with other stores of the same number, for tests.
    pub fn with_stores(mut self, setup: &Setup) -> Program {
        self.stores.fill(setup.clone());
        self
    }

    /// Store and offset of a source that rests there between steps.
    pub(crate) fn stored(&self, value: ValueId) -> impl Iterator<Item = (usize, u64)> {
        let carried = self.schedule.carried.iter().filter(move |carried| carried.source == value);
        carried.map(|c| (self.schedule.slots[c.begin].store.index(), self.layout.slots[c.begin]))
    }

    /// What the values are for.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// The plan that is carried out.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan carried out on the graph.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Places in the arena.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The predicted peak of the step, to the byte: the size of the arena.
    pub fn peak(&self) -> Bytes {
        self.layout.arena
    }

    /// Offset and size of a source or output in the arena. An output may have been recomputed: then its last copy counts.
    pub(crate) fn range(&self, value: ValueId) -> (u64, u64) {
        debug_assert!(!self.schedule.is_stored(value), "a source in a store has no place in memory");
        let graph = &self.schedule.graph;
        let is_copy = |&&v: &&ValueId| self.schedule.original(v) == value;
        let value = graph.outputs.iter().find(is_copy).copied().unwrap_or(value);
        let offset = self.layout.offset[value].expect("sources and outputs have a place");
        (offset, graph.values[value].ty.bytes())
    }

    /// The same program; its plan was made for a smaller budget, since addresses need more than bytes.
    pub(super) fn within(mut self, budget: Bytes) -> Program {
        self.plan.budget_bytes = budget;
        self
    }

    /// This program as the answer to the request that `plan` answered at the same cost.
    pub(super) fn answering(mut self, plan: &Plan) -> Program {
        self.plan.planner.clone_from(&plan.planner);
        (self.plan.status, self.plan.budget_bytes) = (plan.status, plan.budget_bytes);
        self
    }
}
