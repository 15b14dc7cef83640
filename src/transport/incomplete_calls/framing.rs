//! Tracks message boundaries in the bytes of a gRPC stream (Length-Prefixed-Message).

/// The length prefix of a gRPC message: compressed flag and length.
pub const PREFIX_BYTES: usize = 5;

/// The position in a stream of messages.
#[derive(Debug, Default)]
pub(super) struct Framing {
    /// Received bytes of the unfinished message, with its prefix.
    unfinished_bytes: usize,
    prefix: [u8; PREFIX_BYTES],
    /// Bytes still to be received, once the prefix is complete.
    missing_bytes: usize,
}

impl Framing {
    /// Returns the received bytes of the unfinished message, with its prefix.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.unfinished_bytes
    }

    /// Advances by received bytes. Returns whether they complete a message.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) -> bool {
        let mut has_ended = false;
        while !bytes.is_empty() {
            if let Some(missing) = self.prefix.get_mut(self.unfinished_bytes..)
                && !missing.is_empty()
            {
                let (head, rest) = bytes.split_at(missing.len().min(bytes.len()));
                missing[..head.len()].copy_from_slice(head);
                self.unfinished_bytes += head.len();
                bytes = rest;
                if self.unfinished_bytes < PREFIX_BYTES {
                    break;
                }
                let [_compressed, length @ ..] = self.prefix;
                self.missing_bytes = u32::from_be_bytes(length) as usize;
            }
            let taken = self.missing_bytes.min(bytes.len());
            self.missing_bytes -= taken;
            self.unfinished_bytes += taken;
            bytes = &bytes[taken..];
            if self.missing_bytes == 0 {
                (self.unfinished_bytes, has_ended) = (0, true);
            }
        }
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(lengths: &[usize]) -> Vec<u8> {
        let message = |length: &usize| {
            let mut bytes = vec![0];
            bytes.extend_from_slice(&u32::try_from(*length).unwrap().to_be_bytes());
            bytes.resize(bytes.len() + length, 7);
            bytes
        };
        lengths.iter().flat_map(message).collect()
    }

    proptest! {
        #[test]
        fn message_boundaries_are_tracked_across_chunks(
            lengths in prop::collection::vec(0..40_usize, 1..10),
            cuts in prop::collection::vec(1..30_usize, 1..100),
        ) {
            let bytes = framed(&lengths);
            let ends: Vec<_> = (1..=lengths.len()).map(|count| framed(&lengths[..count]).len()).collect();
            let (mut framing, mut at) = (Framing::default(), 0);
            for cut in cuts.into_iter().cycle() {
                let next = (at + cut).min(bytes.len());
                let ended = framing.advance(&bytes[at..next]);
                prop_assert_eq!(ended, ends.iter().any(|end| (at + 1..=next).contains(end)));
                let started = ends.iter().rev().find(|end| **end <= next).copied().unwrap_or(0);
                prop_assert_eq!(framing.unfinished_bytes(), next - started);
                at = next;
                if at == bytes.len() {
                    break;
                }
            }
        }
    }
}
