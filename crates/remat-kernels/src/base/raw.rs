//! Pointers for kernels that may run in place.
//!
//! The layout may give an output the storage of an input that dies at that step. A `&[f32]` and a `&mut [f32]` over
//! the same memory would be undefined behaviour, so kernels that allow it take [`Src`] and [`Dst`]: they read a
//! block of elements before they write the same block, and never an element after it was written.

use std::marker::PhantomData;

/// Elements that are read; they may be the same memory as a [`Dst`] of the same call, element for element.
#[derive(Clone, Copy)]
pub struct Src<'a, T = f32> {
    ptr: *const T,
    len: usize,
    _life: PhantomData<&'a [T]>,
}

/// Elements that are written; they may be the same memory as a [`Src`] of the same call, element for element.
#[derive(Clone, Copy)]
pub struct Dst<'a, T = f32> {
    ptr: *mut T,
    len: usize,
    _life: PhantomData<&'a mut [T]>,
}

// SAFETY: like the slices they stand for; disjoint ranges are handed to different tasks by `block`.
unsafe impl<T: Sync> Send for Src<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Src<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Dst<'_, T> {}
// SAFETY: as above; writing through a shared `Dst` is an unsafe operation.
unsafe impl<T: Send> Sync for Dst<'_, T> {}

impl<'a, T: Copy> Src<'a, T> {
    /// # Safety
    /// `ptr..ptr+len` is readable for `'a`, and written meanwhile only by the kernel call this is passed to.
    pub unsafe fn from_raw(ptr: *const T, len: usize) -> Self {
        Src { ptr, len, _life: PhantomData }
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where the elements begin.
    pub(crate) fn address(&self) -> *const T {
        self.ptr
    }

    /// The `len` elements from `at`.
    #[inline(always)]
    pub fn part(&self, at: usize, len: usize) -> Self {
        assert!(at <= self.len && len <= self.len - at, "part out of range");
        Src { ptr: self.ptr.wrapping_add(at), len, _life: PhantomData }
    }

    /// The `N` elements from `at`.
    #[inline(always)]
    pub(crate) fn array<const N: usize>(&self, at: usize) -> [T; N] {
        assert!(at <= self.len && N <= self.len - at, "block out of range");
        // SAFETY: in range by the assertion.
        unsafe { self.ptr.add(at).cast::<[T; N]>().read_unaligned() }
    }

    /// Copies the elements from `at` into `block`.
    #[inline(always)]
    pub fn read(&self, at: usize, block: &mut [T]) {
        assert!(at + block.len() <= self.len, "block out of range");
        // SAFETY: in range by the assertion; `block` is a fresh local buffer, so the ranges do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.add(at), block.as_mut_ptr(), block.len()) }
    }
}

impl<'a, T: Copy> Dst<'a, T> {
    /// # Safety
    /// `ptr..ptr+len` is writable for `'a`, and touched meanwhile only by the kernel call this is passed to.
    pub unsafe fn from_raw(ptr: *mut T, len: usize) -> Self {
        Dst { ptr, len, _life: PhantomData }
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where the elements begin.
    pub(crate) fn address(&self) -> *const T {
        self.ptr
    }

    /// The address of the element `at`, for kernels that write through pointers.
    #[inline(always)]
    pub(crate) fn at(&self, at: usize) -> *mut T {
        assert!(at < self.len, "element out of range");
        self.ptr.wrapping_add(at)
    }

    /// The `len` elements from `at`.
    #[inline(always)]
    pub fn part(&self, at: usize, len: usize) -> Self {
        assert!(at <= self.len && len <= self.len - at, "part out of range");
        Dst { ptr: self.ptr.wrapping_add(at), len, _life: PhantomData }
    }

    /// The same elements for reading, for kernels that work on what they have written themselves.
    #[inline(always)]
    pub(crate) fn as_src(&self) -> Src<'a, T> {
        Src { ptr: self.ptr, len: self.len, _life: PhantomData }
    }

    /// Writes `block` to the elements from `at`.
    ///
    /// # Safety
    /// No other task touches these elements now.
    #[inline(always)]
    pub unsafe fn write(&self, at: usize, block: &[T]) {
        assert!(at + block.len() <= self.len, "block out of range");
        // SAFETY: in range by the assertion; exclusive by the caller's promise; `block` is a local buffer.
        unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), self.ptr.add(at), block.len()) }
    }
}

impl<'a, T: Copy> From<&'a [T]> for Src<'a, T> {
    fn from(slice: &'a [T]) -> Self {
        Src { ptr: slice.as_ptr(), len: slice.len(), _life: PhantomData }
    }
}

impl<'a, T: Copy> From<&'a mut [T]> for Dst<'a, T> {
    fn from(slice: &'a mut [T]) -> Self {
        Dst { ptr: slice.as_mut_ptr(), len: slice.len(), _life: PhantomData }
    }
}
