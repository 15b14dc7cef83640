//! MessagePack as Redis' library for Lua reads and writes it.

use mlua::{Lua, Value};

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Nil,
    Flag(bool),
    Number(f64),
    Text(Vec<u8>),
    List(Vec<Item>),
}

impl Item {
    /// All values in a row.
    pub fn all(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut items = Vec::new();
        while !bytes.is_empty() {
            items.push(Self::first(&mut bytes)?);
        }
        Some(items)
    }

    /// Takes the first value out.
    pub fn first(bytes: &mut &[u8]) -> Option<Self> {
        let marker = take(bytes, 1)?[0];
        Some(match marker {
            0x00..=0x7f => Self::Number(f64::from(marker)),
            0xe0..=0xff => Self::Number(f64::from(marker as i8)),
            0xc0 => Self::Nil,
            0xc2 => Self::Flag(false),
            0xc3 => Self::Flag(true),
            0xcc..=0xcf => Self::Number(unsigned(bytes, 1 << (marker - 0xcc))? as f64),
            0xd0 => Self::Number(unsigned(bytes, 1)? as i8 as f64),
            0xd1 => Self::Number(unsigned(bytes, 2)? as i16 as f64),
            0xd2 => Self::Number(unsigned(bytes, 4)? as i32 as f64),
            0xd3 => Self::Number(unsigned(bytes, 8)? as i64 as f64),
            0xca => Self::Number(f64::from(f32::from_bits(unsigned(bytes, 4)? as u32))),
            0xcb => Self::Number(f64::from_bits(unsigned(bytes, 8)?)),
            0xa0..=0xbf => Self::text(bytes, u64::from(marker & 0x1f))?,
            0xd9..=0xdb => {
                let length = unsigned(bytes, 1 << (marker - 0xd9))?;
                Self::text(bytes, length)?
            }
            0xc4..=0xc6 => {
                let length = unsigned(bytes, 1 << (marker - 0xc4))?;
                Self::text(bytes, length)?
            }
            0x90..=0x9f => Self::list(bytes, u64::from(marker & 0x0f))?,
            0xdc | 0xdd => {
                let length = unsigned(bytes, 2 << (marker - 0xdc))?;
                Self::list(bytes, length)?
            }
            _ => return None,
        })
    }

    fn text(bytes: &mut &[u8], length: u64) -> Option<Self> {
        Some(Self::Text(take(bytes, length as usize)?.to_vec()))
    }

    fn list(bytes: &mut &[u8], length: u64) -> Option<Self> {
        (0..length).map(|_| Self::first(bytes)).collect::<Option<_>>().map(Self::List)
    }

    pub fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        Ok(match self {
            Self::Nil => Value::Nil,
            Self::Flag(flag) => Value::Boolean(flag),
            Self::Number(number) => Value::Number(number),
            Self::Text(text) => Value::String(lua.create_string(&text)?),
            Self::List(items) => {
                let table = lua.create_table_with_capacity(items.len(), 0)?;
                for item in items {
                    table.raw_push(item.into_lua(lua)?)?;
                }
                Value::Table(table)
            }
        })
    }

    pub fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    pub fn items(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (first, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(first)
}

fn unsigned(bytes: &mut &[u8], count: usize) -> Option<u64> {
    Some(take(bytes, count)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Writes a value of Lua's. Tables are lists.
pub fn write(value: &Value, out: &mut Vec<u8>) -> mlua::Result<()> {
    match value {
        Value::Nil => out.push(0xc0),
        Value::Boolean(flag) => out.push(if *flag { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => write_number(*number as f64, out),
        Value::Number(number) => write_number(*number, out),
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                length @ 0..=31 => out.push(0xa0 | length as u8),
                length => sized(out, 0xd9, length),
            }
            out.extend_from_slice(&text);
        }
        Value::Table(table) => {
            match table.raw_len() {
                length @ 0..=15 => out.push(0x90 | length as u8),
                length if length <= 0xffff => {
                    out.push(0xdc);
                    out.extend_from_slice(&(length as u16).to_be_bytes());
                }
                length => {
                    out.push(0xdd);
                    out.extend_from_slice(&(length as u32).to_be_bytes());
                }
            }
            for item in table.sequence_values::<Value>() {
                write(&item?, out)?;
            }
        }
        other => return Err(mlua::Error::runtime(format!("{} cannot be packed", other.type_name()))),
    }
    Ok(())
}

fn sized(out: &mut Vec<u8>, marker: u8, length: usize) {
    match length {
        0..=0xff => out.extend_from_slice(&[marker, length as u8]),
        0x100..=0xffff => {
            out.push(marker + 1);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(marker + 2);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

fn write_number(number: f64, out: &mut Vec<u8>) {
    if number.fract() == 0.0 && number.abs() < 9.2e18 {
        return write_integer(number as i64, out);
    }
    if f64::from(number as f32) == number {
        out.push(0xca);
        return out.extend_from_slice(&(number as f32).to_be_bytes());
    }
    out.push(0xcb);
    out.extend_from_slice(&number.to_be_bytes());
}

fn write_integer(number: i64, out: &mut Vec<u8>) {
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, number as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend_from_slice(&(number as u64).to_be_bytes());
        }
        -32..0 => out.push(number as i8 as u8),
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let lua = Lua::new();
    let numbers = [0.0, 127.0, 128.0, 65_536.0, 1_700_000_000_000_000.0, -1.0, -33.0, -5_000_000_000.0, 0.5, 0.1];
    let texts = [vec![b'a'; 31], vec![b'b'; 32], vec![b'c'; 300], vec![b'd'; 70_000]];
    let items: Vec<_> = numbers.map(Item::Number).into_iter().chain(texts.map(Item::Text)).collect();
    let all = vec![Item::List(items), Item::Flag(true), Item::List(vec![Item::Flag(false); 20]), Item::Nil];
    let mut bytes = Vec::new();
    all.iter().for_each(|item| write(&item.clone().into_lua(&lua).expect("a value"), &mut bytes).expect("packed"));
    assert_eq!(Item::all(&bytes), Some(all));
}
