//! Rows of a table picked by ids, and the gradient of the table.
//!
//! In: `ids: [rows]`, `table: [n, cols]`. Out: `[rows, cols]`. The gradient is dense: all of `[n, cols]` is zeroed, then
//! rows of `dy` are added in the order of their occurrence. It splits by ranges of the table, and each task scans all
//! ids for its own, so no two tasks add to the same row. Ids are checked by [`check_ids`] before a kernel runs.

use crate::base::par;

/// Elements of the table that one task of the gradient owns: large, because every task scans all ids.
const TABLE_ELEMENTS_PER_TASK: usize = 1 << 18;

/// `Err(i)` if `ids[i]` is the first id that is not in `0..n`.
pub fn check_ids(ids: &[i32], n: usize) -> Result<(), usize> {
    let inside = |&id: &i32| usize::try_from(id).is_ok_and(|id| id < n);
    ids.iter().position(|id| !inside(id)).map_or(Ok(()), Err)
}

/// `y[r] = table[ids[r]]`.
pub fn embedding(cols: usize, ids: &[i32], table: &[f32], y: &mut [f32]) {
    assert_eq!(y.len(), ids.len() * cols, "one row of output for every id");
    if cols == 0 {
        return;
    }
    let rows_per_task = (par::ELEMENTS_PER_TASK / cols).max(1);
    par::for_each_chunk(y, rows_per_task * cols, |task, rows| {
        for (y, &id) in rows.chunks_exact_mut(cols).zip(&ids[task * rows_per_task..]) {
            y.copy_from_slice(&table[id as usize * cols..][..cols]);
        }
    });
}

/// `dtable[i] = Σ dy[r]` over the rows `r` with `ids[r] == i`.
pub fn embedding_grad(cols: usize, ids: &[i32], dy: &[f32], dtable: &mut [f32]) {
    assert_eq!(dy.len(), ids.len() * cols, "one row of gradient for every id");
    if cols == 0 {
        return;
    }
    let rows_per_task = (TABLE_ELEMENTS_PER_TASK / cols).max(1);
    par::for_each_chunk(dtable, rows_per_task * cols, |task, rows| {
        rows.fill(0.0);
        let first = task * rows_per_task;
        let last = first + rows.len() / cols;
        for (&id, dy) in ids.iter().zip(dy.chunks_exact(cols)) {
            if (first..last).contains(&(id as usize)) {
                let row = &mut rows[(id as usize - first) * cols..][..cols];
                for (sum, dy) in row.iter_mut().zip(dy) {
                    *sum += dy;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::embedding as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    #[test]
    fn agrees_with_the_definition() {
        for (rows, n, cols) in [(1, 1, 1), (7, 5, 3), (200, 50, 64), (33, 1000, 65), (300, 3000, 200)] {
            let ids: Vec<i32> = random(rows, 1)
                .iter()
                .map(|x| ((x + 1.0) / 2.0 * n as f32) as i32)
                .map(|i| i.min(n as i32 - 1))
                .collect();
            let (table, dy) = (random(n * cols, 2), random(rows * cols, 3));
            assert_eq!(check_ids(&ids, n), Ok(()));
            let y = same_bits_in_any_pool(|| {
                let mut y = vec![f32::NAN; rows * cols];
                embedding(cols, &ids, &table, &mut y);
                y
            });
            assert_close(&y, &naive::embedding(cols, &ids, &wide(&table)), 0.0);
            let dtable = same_bits_in_any_pool(|| {
                let mut dtable = vec![f32::NAN; n * cols];
                embedding_grad(cols, &ids, &dy, &mut dtable);
                dtable
            });
            assert_close(&dtable, &naive::embedding_grad(cols, &ids, &wide(&dy), n), 1e-6);
        }
    }

    #[test]
    fn the_first_bad_id_is_named() {
        assert_eq!(check_ids(&[0, 4, 2], 5), Ok(()));
        assert_eq!(check_ids(&[0, 5, -1], 5), Err(1));
        assert_eq!(check_ids(&[-1], 5), Err(0));
        assert_eq!(check_ids(&[], 0), Ok(()));
    }
}
