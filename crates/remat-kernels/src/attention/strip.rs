//! What happens to scores between the products that make them and those that use them.
//!
//! Scores are kept transposed, a row for every key, for a strip of queries at a time: neighbours in a row are queries. So a
//! vector holds one score of many queries, maxima and sums need nothing across its lanes, and both products read what lies
//! in memory as it is. A strip is what stays in the first-level cache.
//!
//! Sums have a fixed order: key `j` of a block goes to sum `j % SUMS` of its query, and those are added in order. `f32`
//! suffices: a block is no longer than a tile.

use crate::base::math::{Bundle, exp_of_weight};
use crate::base::vector::{Kernel, Vector, dispatch};
use crate::product::small::Packed;

/// Queries of a strip.
pub(super) const STRIP: usize = 64;
/// Queries that are computed together at least; those beyond the last are there, but mean nothing.
pub(super) const LANES: usize = 16;
/// Sums of a query.
const SUMS: usize = 16;
/// Keys whose exponentials are computed side by side.
const TOGETHER: usize = 4;

/// Scores of a strip: `scores[key * stride + query]`.
pub(super) struct Scores<'a> {
    data: &'a mut [f32],
    stride: usize,
    n_keys: usize,
    /// A multiple of `LANES`.
    n_queries: usize,
}

impl<'a> Scores<'a> {
    pub(super) fn new(data: &'a mut [f32], stride: usize, n_keys: usize, n_queries: usize) -> Self {
        let n_queries = n_queries.next_multiple_of(LANES);
        let n_elements = if n_keys > 0 { (n_keys - 1) * stride + n_queries } else { 0 };
        assert!(n_queries <= STRIP && n_elements <= data.len(), "scores of a strip");
        Scores { data, stride, n_keys, n_queries }
    }

    /// The scores of vectors of queries from `query` on; the first one is that of key 0.
    fn column(&mut self, query: usize) -> *mut f32 {
        self.data.as_mut_ptr().wrapping_add(query)
    }
}

/// The softmax of the queries of a strip over the keys so far.
pub(super) struct Softmax {
    pub(super) maximum: [f32; STRIP],
    /// `Σ e^(score - maximum)`.
    pub(super) denominator: [f32; STRIP],
}

impl Softmax {
    pub(super) const NEW: Softmax =
        Softmax { maximum: [f32::NEG_INFINITY; STRIP], denominator: [0.0; STRIP] };

    /// Takes further keys in: scores become `e^(score - maximum)`, times the factors if there are any. Returns the factor
    /// by which sums over the keys before have to be corrected.
    pub(super) fn take_in(&mut self, scores: Scores<'_>, factors: Option<Packed<'_>>) -> [f32; STRIP] {
        let mut correction = [1.0; STRIP];
        dispatch(TakeIn { softmax: self, scores, factors, correction: &mut correction });
        correction
    }
}

struct TakeIn<'a> {
    softmax: &'a mut Softmax,
    scores: Scores<'a>,
    factors: Option<Packed<'a>>,
    correction: &'a mut [f32; STRIP],
}

impl Kernel for TakeIn<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let TakeIn { softmax, mut scores, factors, correction } = self;
        let (stride, n_keys) = (scores.stride, scores.n_keys);
        for at in (0..scores.n_queries).step_by(V::LANES) {
            let column = scores.column(at);
            // SAFETY: vectors of queries that exist, or are there up to a multiple of `LANES`; keys that exist.
            unsafe {
                let old = V::load(softmax.maximum.as_ptr().add(at));
                let maximum = maximum(column, stride, n_keys, old);
                let factor = exp(old - maximum);
                exponentials(column, stride, n_keys, maximum);
                let sum = match factors {
                    None => sum(column, stride, n_keys, |_, x| x),
                    Some(factors) => sum(column, stride, n_keys, |key, x: V| {
                        (x * V::load(factors.at(key, at))).store(column.add(key * stride));
                        x
                    }),
                };
                let denominator = softmax.denominator.as_mut_ptr().add(at);
                (V::load(denominator) * factor + sum).store(denominator);
                maximum.store(softmax.maximum.as_mut_ptr().add(at));
                factor.store(correction.as_mut_ptr().add(at));
            }
        }
    }
}

/// The largest number of a column and of `old`; not-a-number is passed over.
#[inline(always)]
unsafe fn maximum<V: Vector>(column: *mut f32, stride: usize, n_keys: usize, old: V) -> V {
    let mut maxima = [old; TOGETHER];
    let whole = n_keys / TOGETHER * TOGETHER;
    for first in (0..whole).step_by(TOGETHER) {
        for (i, maximum) in maxima.iter_mut().enumerate() {
            // SAFETY: the promise to the caller's loads.
            *maximum = maximum.at_least(unsafe { V::load(column.add((first + i) * stride)) });
        }
    }
    for key in whole..n_keys {
        // SAFETY: as above.
        maxima[0] = maxima[0].at_least(unsafe { V::load(column.add(key * stride)) });
    }
    let [a, b, c, d] = maxima;
    a.at_least(b).at_least(c.at_least(d))
}

/// Replaces every `x` by `e^(x - shift)`.
#[inline(always)]
unsafe fn exponentials<V: Vector>(column: *mut f32, stride: usize, n_keys: usize, shift: V) {
    let whole = n_keys / TOGETHER * TOGETHER;
    for first in (0..whole).step_by(TOGETHER) {
        let mut x = [V::splat(0.0); TOGETHER];
        for (i, x) in x.iter_mut().enumerate() {
            // SAFETY: the promise to the caller's loads.
            *x = unsafe { V::load(column.add((first + i) * stride)) } - shift;
        }
        for (i, x) in exp_of_weight(Bundle(x)).0.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { x.store(column.add((first + i) * stride)) };
        }
    }
    for key in whole..n_keys {
        // SAFETY: as above.
        unsafe {
            let x = column.add(key * stride);
            exp(V::load(x) - shift).store(x);
        }
    }
}

#[inline(always)]
fn exp<V: Vector>(x: V) -> V {
    let [x] = exp_of_weight(Bundle([x])).0;
    x
}

/// The sums of a column, to which `f` may do something meanwhile.
#[inline(always)]
unsafe fn sum<V: Vector>(column: *mut f32, stride: usize, n_keys: usize, f: impl Fn(usize, V) -> V) -> V {
    let mut total = V::splat(0.0);
    for first in 0..SUMS.min(n_keys) {
        let mut sum = V::splat(0.0);
        for key in (first..n_keys).step_by(SUMS) {
            // SAFETY: the promise to the caller's loads.
            sum = sum + f(key, unsafe { V::load(column.add(key * stride)) });
        }
        total = total + sum;
    }
    total
}

/// From scores and `do · v` to probabilities, times the factors if there are any, and the gradients of the scores.
pub(super) fn score_gradients(
    p: Scores<'_>,
    ds: Scores<'_>,
    factors: Option<Packed<'_>>,
    lse: &[f32; STRIP],
    delta: &[f32; STRIP],
) {
    assert_eq!((p.stride, p.n_keys, p.n_queries), (ds.stride, ds.n_keys, ds.n_queries), "the same scores");
    dispatch(ScoreGradients { p, ds, factors, lse, delta });
}

struct ScoreGradients<'a> {
    p: Scores<'a>,
    ds: Scores<'a>,
    factors: Option<Packed<'a>>,
    lse: &'a [f32; STRIP],
    delta: &'a [f32; STRIP],
}

impl Kernel for ScoreGradients<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let ScoreGradients { mut p, mut ds, factors, lse, delta } = self;
        let (stride, n_keys) = (p.stride, p.n_keys);
        for at in (0..p.n_queries).step_by(V::LANES) {
            let (p, ds) = (p.column(at), ds.column(at));
            // SAFETY: as in `TakeIn`.
            unsafe {
                let (lse, delta) = (V::load(lse.as_ptr().add(at)), V::load(delta.as_ptr().add(at)));
                exponentials(p, stride, n_keys, lse);
                for key in 0..n_keys {
                    let (p, ds) = (p.add(key * stride), ds.add(key * stride));
                    let (probability, mut d) = (V::load(p), V::load(ds));
                    if let Some(factors) = factors {
                        let factor = V::load(factors.at(key, at));
                        d = d * factor;
                        (probability * factor).store(p);
                    }
                    (probability * (d - delta)).store(ds);
                }
            }
        }
    }
}
