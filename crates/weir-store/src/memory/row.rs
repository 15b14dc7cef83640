//! A chunked vector: it grows and shrinks by chunks, without moving or doubling, so it never takes much more memory
//! than its values.

use std::ops::{Index, IndexMut};

/// Approximate bytes of a chunk: small compared to a full shard, and a size that allocators do not round up.
const PIECE_BYTES: usize = 8_192;

pub(super) struct Row<T> {
    /// All are full except the last, and none is empty.
    pieces: Vec<Vec<T>>,
}

impl<T> Row<T> {
    const PIECE: usize = if size_of::<T>() < PIECE_BYTES { PIECE_BYTES / size_of::<T>() } else { 1 };

    pub(super) fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * Self::PIECE + last.len())
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.pieces.get(index / Self::PIECE)?.get(index % Self::PIECE)
    }

    pub(super) fn push(&mut self, value: T) {
        match self.pieces.last_mut() {
            Some(last) if last.len() < Self::PIECE => last.push(value),
            _ => {
                let mut piece = Vec::with_capacity(Self::PIECE);
                piece.push(value);
                self.pieces.push(piece);
            }
        }
    }

    /// Removes the value at `index` and moves the last one into its slot.
    pub(crate) fn swap_remove(&mut self, index: usize) {
        let Some(piece) = self.pieces.last_mut() else { return };
        let value = piece.pop();
        if piece.is_empty() {
            self.pieces.pop();
        }
        if let Some(value) = value
            && index < self.len()
        {
            self[index] = value;
        }
    }
}

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<T> Index<usize> for Row<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.pieces[index / Self::PIECE][index % Self::PIECE]
    }
}

impl<T> IndexMut<usize> for Row<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.pieces[index / Self::PIECE][index % Self::PIECE]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_vec(story in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
            let (mut row, mut model) = (Row::<[u8; PIECE_BYTES / 3]>::default(), Vec::new());
            for (number, (add, at)) in story.into_iter().enumerate() {
                if add || model.is_empty() {
                    row.push([number as u8; PIECE_BYTES / 3]);
                    model.push(number as u8);
                } else {
                    let index = at.index(model.len());
                    row.swap_remove(index);
                    model.swap_remove(index);
                }
                let held: Vec<_> = (0..row.len()).map(|index| row[index][0]).collect();
                prop_assert_eq!(&held, &model);
                prop_assert!(row.get(row.len()).is_none());
            }
        }
    }
}
