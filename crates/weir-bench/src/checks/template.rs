//! Encoded messages in which only the number of the key differs.

use bytes::BytesMut;

/// Maximum number of digits.
const MAX_DIGITS: usize = 20;

/// A message that is encoded once. Each use copies it and patches the number.
#[derive(Clone, Debug)]
pub(super) struct Template {
    bytes: Vec<u8>,
    /// Offsets of the numbers.
    offsets: Vec<usize>,
    /// Digits of each number, zero-padded, so that all messages have the same length.
    digits: usize,
}

impl Template {
    /// Makes a template for numbers from 0 to below `count`. `write` encodes the message with these digits as the
    /// number.
    pub(super) fn new(count: u64, write: impl Fn(&str) -> Vec<u8>) -> Self {
        let digits = count.saturating_sub(1).to_string().len().min(MAX_DIGITS);
        let [bytes, other] = ["0", "1"].map(|digit| write(&digit.repeat(digits)));
        // The two differ only in the digits.
        let (mut offsets, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            if bytes[at] == other[at] {
                at += 1;
            } else {
                offsets.push(at);
                at += digits;
            }
        }
        Self { bytes, offsets, digits }
    }

    /// Returns the length of every message, in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the message with `number`.
    pub(super) fn write(&self, number: u64, out: &mut BytesMut) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for offset in &self.offsets {
            let mut rest = number;
            for digit in out[start + offset..][..self.digits].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(template: &Template, number: u64) -> String {
        let mut out = BytesMut::from("before ");
        template.write(number, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn every_occurrence_of_the_number_is_patched() {
        let template = Template::new(1_001, |digits| format!("0 {digits}{digits} {digits} 1").into_bytes());
        assert_eq!(written(&template, 7), "before 0 00070007 0007 1");
        assert_eq!(written(&template, 1_000), "before 0 10001000 1000 1");
        assert_eq!(template.len(), "0 00070007 0007 1".len());
    }

    #[test]
    fn a_single_key_has_one_digit_and_a_number_is_optional() {
        assert_eq!(written(&Template::new(1, |digits| digits.as_bytes().to_vec()), 0), "before 0");
        let fixed = Template::new(1, |_| b"fixed".to_vec());
        assert_eq!(written(&fixed, 0), "before fixed");
    }

    #[test]
    fn the_largest_number_fits() {
        let template = Template::new(u64::MAX, |digits| digits.as_bytes().to_vec());
        assert_eq!(written(&template, u64::MAX - 1), format!("before {}", u64::MAX - 1));
    }
}
