//! MessagePack, read and written like Redis' Lua library.

use mlua::{ExternalResult, Lua, Value};
use rmp::encode;

/// Decodes consecutive values.
pub fn all(bytes: &[u8]) -> Option<Vec<rmpv::Value>> {
    some(bytes, usize::MAX).map(|(items, _)| items)
}

/// Decodes at most `most` consecutive values, and returns the rest.
pub fn some(mut bytes: &[u8], most: usize) -> Option<(Vec<rmpv::Value>, &[u8])> {
    let mut items = Vec::new();
    while !bytes.is_empty() && items.len() < most {
        items.push(rmpv::decode::read_value(&mut bytes).ok()?);
    }
    Some((items, bytes))
}

pub fn into_lua(item: &rmpv::Value, lua: &Lua) -> mlua::Result<Value> {
    Ok(match item {
        rmpv::Value::Nil => Value::Nil,
        rmpv::Value::Boolean(flag) => Value::Boolean(*flag),
        rmpv::Value::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(into_lua(item, lua)?)?;
            }
            Value::Table(table)
        }
        item => match (item.as_slice(), item.as_f64()) {
            (Some(text), _) => Value::String(lua.create_string(text)?),
            (_, Some(number)) => Value::Number(number),
            _ => return Err(mlua::Error::runtime("Bad data format in input.")),
        },
    })
}

/// Encodes a Lua value. Tables are lists.
pub fn write(value: &Value, out: &mut Vec<u8>) -> mlua::Result<()> {
    match value {
        Value::Nil => encode::write_nil(out).into_lua_err(),
        Value::Boolean(flag) => encode::write_bool(out, *flag).into_lua_err(),
        Value::Integer(number) => write_number(*number as f64, out),
        Value::Number(number) => write_number(*number, out),
        Value::String(text) => {
            let text = text.as_bytes();
            encode::write_str_len(out, text.len() as u32).into_lua_err()?;
            out.extend_from_slice(&text);
            Ok(())
        }
        Value::Table(table) => {
            encode::write_array_len(out, table.raw_len() as u32).into_lua_err()?;
            table.sequence_values::<Value>().try_for_each(|item| write(&item?, out))
        }
        other => Err(mlua::Error::runtime(format!("{} cannot be packed", other.type_name()))),
    }
}

fn write_number(number: f64, out: &mut Vec<u8>) -> mlua::Result<()> {
    if number.fract() == 0.0 && number.abs() < 9.2e18 {
        encode::write_sint(out, number as i64).map(drop).into_lua_err()
    } else if f64::from(number as f32) == number {
        encode::write_f32(out, number as f32).into_lua_err()
    } else {
        encode::write_f64(out, number).into_lua_err()
    }
}

#[test]
fn values_round_trip() {
    use rmpv::Value::{Array, Boolean, F32, F64, Nil};

    let lua = Lua::new();
    let whole = [0, 127, 128, 65_536, 1_700_000_000_000_000, -1, -33, -5_000_000_000_i64].map(rmpv::Value::from);
    let texts = [("a", 31), ("b", 32), ("c", 300), ("d", 70_000)].map(|(text, length)| text.repeat(length).into());
    let items = whole.into_iter().chain([F32(0.5), F64(0.1)]).chain(texts).collect();
    let all_items = vec![Array(items), Boolean(true), Array(vec![Boolean(false); 20]), Nil];
    let mut bytes = Vec::new();
    all_items.iter().for_each(|item| write(&into_lua(item, &lua).expect("a value"), &mut bytes).expect("packed"));
    assert_eq!(all(&bytes), Some(all_items));
}
