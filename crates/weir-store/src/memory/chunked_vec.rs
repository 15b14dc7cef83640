//! A chunked vector: it grows and shrinks by chunks, without moving or doubling, so it never takes much more memory
//! than its values.

use std::ops::{Index, IndexMut};

/// Approximate bytes of a chunk: small compared to a full shard, and a size that allocators do not round up.
const CHUNK_BYTES: usize = 8_192;

pub(super) struct ChunkedVec<T> {
    /// All are full except the last, and none is empty.
    chunks: Vec<Vec<T>>,
}

impl<T> ChunkedVec<T> {
    const CHUNK: usize = if size_of::<T>() < CHUNK_BYTES { CHUNK_BYTES / size_of::<T>() } else { 1 };

    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * Self::CHUNK + last.len())
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / Self::CHUNK)?.get(index % Self::CHUNK)
    }

    pub(super) fn push(&mut self, value: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < Self::CHUNK => last.push(value),
            _ => {
                let mut chunk = Vec::with_capacity(Self::CHUNK);
                chunk.push(value);
                self.chunks.push(chunk);
            }
        }
    }

    /// Removes the value at `index` and moves the last one into its slot.
    pub(crate) fn swap_remove(&mut self, index: usize) {
        let Some(chunk) = self.chunks.last_mut() else { return };
        let value = chunk.pop();
        if chunk.is_empty() {
            self.chunks.pop();
        }
        if let Some(value) = value
            && index < self.len()
        {
            self[index] = value;
        }
    }
}

impl<T> Default for ChunkedVec<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Index<usize> for ChunkedVec<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.chunks[index / Self::CHUNK][index % Self::CHUNK]
    }
}

impl<T> IndexMut<usize> for ChunkedVec<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.chunks[index / Self::CHUNK][index % Self::CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_vec(events in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
            let (mut vec, mut model) = (ChunkedVec::<[u8; CHUNK_BYTES / 3]>::default(), Vec::new());
            for (number, (add, at)) in events.into_iter().enumerate() {
                if add || model.is_empty() {
                    vec.push([number as u8; CHUNK_BYTES / 3]);
                    model.push(number as u8);
                } else {
                    let index = at.index(model.len());
                    vec.swap_remove(index);
                    model.swap_remove(index);
                }
                let held: Vec<_> = (0..vec.len()).map(|index| vec[index][0]).collect();
                prop_assert_eq!(&held, &model);
                prop_assert!(vec.get(vec.len()).is_none());
            }
        }
    }
}
