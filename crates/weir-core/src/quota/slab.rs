//! Things by small numbers, which are used again.

/// Things by number.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    unused: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), unused: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, item: T) -> u32 {
        match self.unused.pop() {
            Some(index) => {
                self.items[index as usize] = Some(item);
                index
            }
            None => {
                self.items.push(Some(item));
                (self.items.len() - 1) as u32
            }
        }
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.items.get(index as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.items.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let removed = self.items.get_mut(index as usize)?.take();
        if removed.is_some() {
            self.unused.push(index);
        }
        removed
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() - self.unused.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().enumerate().filter_map(|(index, item)| Some((index as u32, item.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.items.iter_mut().enumerate().filter_map(|(index, item)| Some((index as u32, item.as_mut()?)))
    }
}
