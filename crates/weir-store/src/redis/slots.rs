//! The hash slots of a Cluster and their masters.

use std::sync::Arc;

use crc16::{State, XMODEM};
use deadpool_redis::redis::Value;

use crate::url::Address;

/// Number of hash slots of a Cluster.
pub const SLOTS: usize = 16_384;
/// Most masters in a map.
const MAX_MASTERS: usize = 1_000;
/// Marks a hash slot without a master, in place of the master's index.
const UNASSIGNED: u16 = u16::MAX;

/// Returns the hash slot of a key: of its hash tag, the text in its first braces, if that is not empty.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let from = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[from..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[from..from + length])
    };
    State::<XMODEM>::calculate(tag().unwrap_or(key)) % SLOTS as u16
}

/// A map from hash slots to masters, each with a `T`.
#[derive(Debug)]
pub struct SlotMap<T> {
    owners: Box<[u16]>,
    masters: Vec<(Address, Arc<T>)>,
    /// Number of hash slots with a master.
    covered: usize,
}

impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self { owners: vec![UNASSIGNED; SLOTS].into(), masters: Vec::new(), covered: 0 }
    }
}

impl<T> Clone for SlotMap<T> {
    fn clone(&self) -> Self {
        Self { owners: self.owners.clone(), masters: self.masters.clone(), covered: self.covered }
    }
}

impl<T> SlotMap<T> {
    /// Returns the master of a hash slot.
    pub fn owner(&self, slot: u16) -> Option<&Arc<T>> {
        self.masters.get(usize::from(*self.owners.get(usize::from(slot))?)).map(|(_, master)| master)
    }

    /// Returns the master at an address.
    pub fn at(&self, address: &Address) -> Option<&Arc<T>> {
        self.masters.iter().find(|(known, _)| known == address).map(|(_, master)| master)
    }

    /// Returns the number of hash slots with a master, of [`SLOTS`].
    pub fn covered(&self) -> usize {
        self.covered
    }

    /// Returns the last hash slot of the master at an address: migrations usually start with the first.
    pub(crate) fn last_of(&self, address: &Address) -> Option<u16> {
        let master = self.masters.iter().position(|(known, _)| known == address)?;
        self.owners.iter().rposition(|owner| usize::from(*owner) == master).map(|slot| slot as u16)
    }

    /// Returns all masters with their addresses.
    pub fn masters(&self) -> impl Iterator<Item = &(Address, Arc<T>)> {
        self.masters.iter()
    }

    /// Assigns hash slots to the master at an address, which `make` creates if it is new. Once the map has the most
    /// masters, new ones are ignored, and their hash slots keep their masters.
    pub fn give(&mut self, slots: impl Iterator<Item = u16>, address: &Address, make: impl FnOnce() -> Arc<T>) {
        let known = self.masters.iter().position(|(known, _)| known == address);
        let master = match known {
            Some(master) => master,
            None if self.masters.len() < MAX_MASTERS => {
                self.masters.push((address.clone(), make()));
                self.masters.len() - 1
            }
            None => return,
        };
        for slot in slots {
            if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
                self.covered += usize::from(*owner == UNASSIGNED);
                *owner = master as u16;
            }
        }
    }
}

/// A range of hash slots, both ends included, and the address of their master.
pub type Range = (u16, u16, Address);

/// Parses a reply to `CLUSTER SLOTS`; `None` if it is invalid. A server that does not know its own host leaves it
/// empty, which stands for the host that was `asked`.
pub fn ranges(reply: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(|range| self::range(range, asked)).collect()
}

fn range(range: &Value, asked: &Address) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else {
        return None;
    };
    let [host, Value::Int(port), ..] = &master[..] else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => "",
    };
    let slot = |number: i64| u16::try_from(number).ok().filter(|slot| usize::from(*slot) < SLOTS);
    Some((slot(*first)?, slot(*last)?, place(host, u16::try_from(*port).ok()?, asked)?))
}

/// Parses the target of a `MOVED` or `ASK` error, such as `MOVED 3999 127.0.0.1:6381`.
pub fn redirect(text: &str, asked: &Address) -> Option<Address> {
    let (host, port) = text.split(' ').nth(2)?.rsplit_once(':')?;
    place(host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?, asked)
}

fn place(host: &str, port: u16, asked: &Address) -> Option<Address> {
    match (host, asked) {
        ("" | "?", Address::Tcp { host, .. }) => Some(Address::Tcp { host: host.clone(), port }),
        ("" | "?", Address::Unix(_)) => None,
        _ => Some(Address::Tcp { host: host.to_owned(), port }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn redirects_are_parsed_to_an_address() {
        let asked = tcp("10.0.0.1", 1);
        assert_eq!(redirect("MOVED 3999 127.0.0.1:6381", &asked), Some(tcp("127.0.0.1", 6381)));
        assert_eq!(redirect("ASK 3999 ::1:6381", &asked), Some(tcp("::1", 6381)));
        assert_eq!(redirect("MOVED 3999 [::1]:6381", &asked), Some(tcp("::1", 6381)));
        assert_eq!(redirect("MOVED 3999 :6381", &asked), Some(tcp("10.0.0.1", 6381)), "the one that was asked");
        for text in ["MOVED", "MOVED 1 host", "MOVED 1 host:port", "ASK 1 host:99999"] {
            assert_eq!(redirect(text, &asked), None, "{text}");
        }
    }

    #[test]
    fn hash_tags_decide_the_slot() {
        // The replies to CLUSTER KEYSLOT.
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo{123456789}bar", 12_739),
            ("{123456789}", 12_739),
            ("{123456789}{other}", 12_739),
            ("8xjx7vWrfPq54mKfFD3Y1CcjjofpnAcQ", 5_458),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        for (key, whole) in [("foo{}{bar}", 8_363), ("foo{bar", 15_278), ("", 0)] {
            assert_eq!(slot_of(key.as_bytes()), whole, "{key}");
        }
    }

    #[test]
    fn slots_map_to_their_master() {
        let mut map = SlotMap::default();
        assert_eq!(map.covered(), 0);
        map.give(0..=8_191, &tcp("a", 1), || Arc::new('a'));
        map.give(8_192..=16_383, &tcp("b", 1), || Arc::new('b'));
        map.give(5..=5, &tcp("b", 1), || unreachable!("known already"));
        map.give(16_384..=u16::MAX, &tcp("a", 1), || unreachable!("known already"));
        let owner = |slot| map.owner(slot).map(|owner| **owner);
        assert_eq!([0, 4, 5, 6, 16_383].map(owner), ['a', 'a', 'b', 'a', 'b'].map(Some));
        assert_eq!(owner(16_384), None);
        assert_eq!(
            [&tcp("a", 1), &tcp("b", 1), &tcp("c", 1)].map(|at| map.last_of(at)),
            [Some(8_191), Some(16_383), None]
        );
        assert_eq!(map.covered(), SLOTS);
        assert_eq!(SlotMap::<char>::default().owner(0), None);
    }
}
