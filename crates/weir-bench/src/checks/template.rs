//! A message in which only a key's number changes.

use bytes::BytesMut;

/// Most digits of a number.
const MAX_DIGITS: usize = 20;

/// A message, written once; another number is patched into it. So a body costs a copy, however many keys there are.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// Where numbers stand.
    places: Vec<usize>,
    /// How many digits each has; those of smaller numbers begin with zeros, so that all messages are equally long.
    digits: usize,
}

impl Template {
    /// A message for the numbers from 0 to below `count`. `write` writes it with these digits for the number.
    pub fn new(count: u64, write: impl Fn(&str) -> Vec<u8>) -> Self {
        let digits = count.saturating_sub(1).to_string().len().min(MAX_DIGITS);
        let [bytes, other] = ["0", "1"].map(|digit| write(&digit.repeat(digits)));
        // Only digits make the two differ.
        let (mut places, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            if bytes[at] == other[at] {
                at += 1;
            } else {
                places.push(at);
                at += digits;
            }
        }
        Self { bytes, places, digits }
    }

    /// The length of every message, in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the message with this number.
    pub fn write(&self, number: u64, out: &mut BytesMut) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for place in &self.places {
            let mut rest = number;
            for digit in out[start + place..][..self.digits].iter_mut().rev() {
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
    fn the_number_stands_wherever_it_is_meant_to() {
        let template = Template::new(1_001, |digits| format!("0 {digits}{digits} {digits} 1").into_bytes());
        assert_eq!(written(&template, 7), "before 0 00070007 0007 1");
        assert_eq!(written(&template, 1_000), "before 0 10001000 1000 1");
        assert_eq!(template.len(), "0 00070007 0007 1".len());
    }

    #[test]
    fn one_key_has_one_digit_and_a_message_may_do_without() {
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
