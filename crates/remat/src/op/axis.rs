//! Tensors seen around one axis, for the ops that cut and join.

use crate::graph::{DType, Type};
use remat_kernels::shape::AxisShape;

/// A float tensor as `[outer, axis, inner]`, or what is wrong.
pub(super) fn around_axis(ty: &Type, axis: usize) -> Result<AxisShape, String> {
    if ty.dtype() != DType::F32 || axis >= ty.rank() {
        return Err(format!("takes a float tensor with a dimension {axis}, got {ty}"));
    }
    let (outer, rest) = ty.shape().split_at(axis);
    // An empty tensor's other dimensions are not bounded by its size.
    let product = |dims: &[usize]| dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let sizes = product(outer).zip(product(&rest[1..]));
    let (outer, inner) = sizes.ok_or_else(|| format!("the sizes of {ty} overflow"))?;
    Ok(AxisShape { outer, axis: rest[0], inner })
}

/// The type of `ty` with another extent of `axis`, which it must have.
pub(super) fn with_axis(ty: &Type, axis: usize, extent: usize) -> Result<Type, String> {
    let mut shape = ty.shape().to_vec();
    *shape.get_mut(axis).ok_or_else(|| format!("{ty} has no dimension {axis}"))? = extent;
    Type::f32(&shape).map_err(|e| e.to_string())
}
