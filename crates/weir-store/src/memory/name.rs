//! The name of a state: an encoded key followed by the limit's ident.

/// Largest inline name in bytes; longer ones are allocated. It fits a key of 24 bytes with one more short segment.
const INLINE: usize = 46;

pub(super) enum Name {
    /// Stored in place, with its length.
    Inline(u8, [u8; INLINE]),
    /// Allocated.
    Boxed(Box<[u8]>),
}

impl Name {
    /// Creates the name for the state of the limit `ident` on the key `path`.
    pub(super) fn new(path: &[u8], ident: &[u8]) -> Self {
        let length = path.len() + ident.len();
        if length > INLINE {
            return Self::Boxed([path, ident].concat().into());
        }
        let mut bytes = [0; INLINE];
        bytes[..path.len()].copy_from_slice(path);
        bytes[path.len()..length].copy_from_slice(ident);
        Self::Inline(length as u8, bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Self::Boxed(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_length_joins_its_two_parts() {
        for length in 0..2 * INLINE {
            let path = vec![b'k'; length];
            assert_eq!(Name::new(&path, b"ident").bytes(), [&path[..], b"ident"].concat());
        }
    }
}
