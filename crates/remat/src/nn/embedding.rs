//! Tables of learned vectors: tokens and positions.

use super::net::refusal;
use super::{Net, Tensor};
use crate::error::Result;
use crate::graph::{Builder, Init, Type};
use crate::ids::ValueId;
use crate::op::add::Add;
use crate::op::embedding::Embedding as EmbeddingOp;
use crate::op::slice::Slice;

/// Options of [`Net::embedding`], as in `nn.Embedding`. `[rows, width]` is short for [`Table::new`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Table {
    shape: [usize; 2],
    init: Init,
}

impl Table {
    /// This many vectors of this width; they start normal with deviation 1, as in PyTorch.
    pub fn new(rows: usize, width: usize) -> Table {
        Table { shape: [rows, width], init: Init::Normal(1.0) }
    }

    /// What the vectors start from.
    pub fn init(self, init: Init) -> Table {
        Table { init, ..self }
    }
}

impl From<[usize; 2]> for Table {
    fn from([rows, width]: [usize; 2]) -> Table {
        Table::new(rows, width)
    }
}

/// A table of learned vectors under a name of its own. It can be used more than once: for ids, for positions, and as
/// the matrix of a head, as in [`Tensor::linear_cross_entropy`].
#[derive(Clone, Copy, Debug)]
pub struct Embedding<'g> {
    weight: Tensor<'g>,
}

/// The parameter's name within its module.
const WEIGHT: &str = "weight";

impl<'g> Embedding<'g> {
    /// The table itself, `[rows, width]`.
    pub fn weight(self) -> Tensor<'g> {
        self.weight
    }

    /// The vectors that `ids: [..]` name, `[.., width]`. The node belongs to the table's module.
    #[track_caller]
    pub fn lookup(self, ids: Tensor<'g>) -> Tensor<'g> {
        self.node(ids, |b, table, ids| {
            expect_limit(b, "embedding", ids, "rows", b.ty(table).shape()[0])?;
            b.add(EmbeddingOp {}, &[ids, table])
        })
    }

    /// Adds nodes under the table's module.
    #[track_caller]
    fn node(
        self,
        x: Tensor<'g>,
        build: impl FnOnce(&mut Builder, ValueId, ValueId) -> Result<ValueId>,
    ) -> Tensor<'g> {
        self.weight.net().node("", &[self.weight, x], |b, inputs| {
            let name = b.graph().value_name(inputs[0]);
            let module =
                name.strip_suffix(WEIGHT).and_then(|path| path.strip_suffix('.')).unwrap_or_default();
            b.at_scope(module, |b| build(b, inputs[0], inputs[1]))
        })
    }
}

/// Fails when integers of the batch reach further than what they choose from.
pub(super) fn expect_limit(b: &Builder, op: &'static str, ids: ValueId, what: &str, n: usize) -> Result<()> {
    match b.graph().source(ids).map(|source| (source.init, &source.name)) {
        Some((Init::Indices(limit) | Init::Labels(limit), name)) if limit > n => {
            Err(refusal(b, op, format!("`{name}` is in 0..{limit}, but there are only {n} {what}")))
        }
        _ => Ok(()),
    }
}

impl Net {
    /// A table of learned vectors: `nn.Embedding`. The parameter is `weight: [rows, width]`.
    ///
    /// ```
    /// # use remat::nn::{Init, Model, Table};
    /// let model = Model::build("lm", |g| {
    ///     let (input, labels) = (g.tokens("input", [2, 16], 99), g.labels("labels", [2, 16], 99));
    ///     let words = g.embedding("wte", Table::new(99, 32).init(Init::Normal(0.02)));
    ///     let x = words.lookup(input).add_positions(g.embedding("wpe", [16, 32]));
    ///     x.linear_cross_entropy("head", words, labels)
    /// })?;
    /// # assert_eq!(model.n_parameters(), (99 + 16) * 32);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn embedding(&self, name: impl AsRef<str>, table: impl Into<Table>) -> Embedding<'_> {
        let Table { shape, init } = table.into();
        let weight = self.node(name.as_ref(), &[], |b, _| Ok(b.parameter(WEIGHT, Type::f32(&shape)?, init)));
        Embedding { weight }
    }
}

impl<'g> Tensor<'g> {
    /// The vectors of a new table that these ids name: `nn.Embedding`. [`Net::embedding`] makes a table to use again.
    #[track_caller]
    pub fn embedding(self, name: impl AsRef<str>, table: impl Into<Table>) -> Tensor<'g> {
        self.net().embedding(name, table).lookup(self)
    }

    /// Adds the first rows of a table to `x: [batch, time, width]`, one row for each position.
    #[track_caller]
    pub fn add_positions(self, positions: Embedding<'g>) -> Tensor<'g> {
        positions.node(self, |b, table, x| {
            let &[_, used, _] = b.ty(x).shape() else {
                let ty = b.ty(x);
                return Err(refusal(b, "add_positions", format!("takes [batch, time, width], got {ty}")));
            };
            let rows = b.ty(table).shape()[0];
            let first =
                if used == rows { table } else { b.add(Slice { axis: 0, start: 0, end: used }, &[table])? };
            b.add(Add {}, &[x, first])
        })
    }
}
