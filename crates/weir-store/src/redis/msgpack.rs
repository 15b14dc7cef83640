//! Writing of MessagePack to a buffer.

use rmp::encode::{ByteBuf, write_array_len, write_f64, write_sint, write_str_len};

/// 2^53: below it, every integer is exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

// Writing to a buffer in memory cannot fail, so the results below are ignored.

pub(super) fn int(body: &mut ByteBuf, value: i64) {
    let _ = write_sint(body, value);
}

fn number(body: &mut ByteBuf, value: f64) {
    if value.fract() == 0.0 && value.abs() < EXACT {
        int(body, value as i64);
    } else {
        let _ = write_f64(body, value);
    }
}

pub(super) fn numbers(body: &mut ByteBuf, words: &[f64]) {
    array_head(body, words.len());
    words.iter().for_each(|word| number(body, *word));
}

pub(super) fn array_head(body: &mut ByteBuf, length: usize) {
    let _ = write_array_len(body, length as u32);
}

pub(super) fn text(body: &mut ByteBuf, bytes: &[u8]) {
    text_head(body, bytes.len());
    body.as_mut_vec().extend_from_slice(bytes);
}

/// Encodes a string's length. Lua strings are bytes.
pub(super) fn text_head(body: &mut ByteBuf, length: usize) {
    let _ = write_str_len(body, length as u32);
}
