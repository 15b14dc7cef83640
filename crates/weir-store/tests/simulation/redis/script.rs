//! The real script, run by the Lua version that Redis embeds (5.1).

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use deadpool_redis::redis;
use mlua::{Function, Lua, MultiValue, Table, Value, Variadic};

use super::{READONLY, keyspace::Keyspace, msgpack};

/// A Lua with `redis.call` and `cmsgpack`.
pub struct Scripts {
    lua: Lua,
    /// The compiled scripts by SHA-1.
    compiled: HashMap<Vec<u8>, Compiled>,
}

/// Forbids global variables, like Redis.
const NO_GLOBALS: &str = "
    local function no_global(_, name) error('the global ' .. name, 2) end
    setmetatable(_G, {__index = no_global, __newindex = no_global})
";

struct Compiled {
    text: Vec<u8>,
    function: Function,
}

impl Scripts {
    pub fn new(keyspace: &Rc<RefCell<Keyspace>>) -> mlua::Result<Self> {
        let lua = Lua::new();
        let library_of_redis = lua.create_table()?;
        let keyspace = Rc::clone(keyspace);
        let call = move |lua: &Lua, words: Variadic<Value>| call(lua, &mut keyspace.borrow_mut(), &words);
        library_of_redis.set("call", lua.create_function(call)?)?;
        lua.globals().set("redis", library_of_redis)?;
        let library = lua.create_table()?;
        library.set("pack", lua.create_function(pack)?)?;
        library.set("unpack", lua.create_function(unpack)?)?;
        library.set("unpack_limit", lua.create_function(unpack_limit)?)?;
        lua.globals().set("cmsgpack", library)?;
        lua.load(NO_GLOBALS).exec()?;
        Ok(Self { lua, compiled: HashMap::new() })
    }

    /// Compiles a script and returns its SHA-1.
    pub fn compile(&mut self, text: &[u8]) -> Vec<u8> {
        if let Some((sha, _)) = self.compiled.iter().find(|(_, script)| script.text == text) {
            return sha.clone();
        }
        let sha = redis::Script::new(&String::from_utf8_lossy(text)).get_hash().as_bytes().to_vec();
        let function = self.lua.load(text).set_name("@user_script").into_function().expect("a script");
        self.compiled.insert(sha.clone(), Compiled { text: text.to_vec(), function });
        sha
    }

    pub fn run(&self, sha: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Result<Vec<u8>, String> {
        let run = || -> mlua::Result<Vec<u8>> {
            for (name, texts) in [("KEYS", keys), ("ARGV", arguments)] {
                self.lua.globals().raw_set(name, list(&self.lua, texts)?)?;
            }
            let reply: mlua::LuaString = self.compiled[sha].function.call(())?;
            Ok(reply.as_bytes().to_vec())
        };
        run().map_err(|error| error.to_string())
    }
}

fn pack(lua: &Lua, values: Variadic<Value>) -> mlua::Result<mlua::LuaString> {
    let mut out = Vec::new();
    values.iter().try_for_each(|value| msgpack::write(value, &mut out))?;
    lua.create_string(out)
}

/// Decodes at most `most` values, after the offset of the next one, or -1.
fn unpack_limit(lua: &Lua, (text, most): (mlua::LuaString, usize)) -> mlua::Result<MultiValue> {
    let bytes = text.as_bytes();
    let (items, rest) = msgpack::some(&bytes, most).ok_or_else(|| mlua::Error::runtime("Bad data format in input."))?;
    let next = if rest.is_empty() { -1 } else { (bytes.len() - rest.len()) as i64 };
    std::iter::once(Ok(Value::Integer(next))).chain(items.iter().map(|item| msgpack::into_lua(item, lua))).collect()
}

fn unpack(lua: &Lua, text: mlua::LuaString) -> mlua::Result<MultiValue> {
    let items = msgpack::all(&text.as_bytes()).ok_or_else(|| mlua::Error::runtime("Bad data format in input."))?;
    items.iter().map(|item| msgpack::into_lua(item, lua)).collect()
}

fn list<T: AsRef<[u8]>>(lua: &Lua, texts: &[T]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(texts.len(), 0)?;
    for text in texts {
        table.raw_push(lua.create_string(text)?)?;
    }
    Ok(table)
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        Value::Number(number) => format!("{number}").into_bytes(),
        other => panic!("{} is no argument", other.type_name()),
    }
}

fn number(word: &[u8]) -> i64 {
    std::str::from_utf8(word).expect("a number").parse().expect("a number")
}

fn flat(lua: &Lua, fields: Vec<(Vec<u8>, Vec<u8>)>) -> mlua::Result<Table> {
    let texts: Vec<_> = fields.into_iter().flat_map(|(field, value)| [field, value]).collect();
    list(lua, &texts)
}

/// Runs a command of a script.
fn call(lua: &Lua, keyspace: &mut Keyspace, words: &[Value]) -> mlua::Result<Value> {
    let words: Vec<_> = words.iter().map(bytes).collect();
    let (command, rest) = words.split_first().expect("a command");
    let count = |number: usize| Ok(Value::Number(number as f64));
    if keyspace.is_read_only && matches!(&command[..], b"HSET" | b"HDEL" | b"UNLINK" | b"PEXPIRE") {
        return Err(mlua::Error::runtime(READONLY));
    }
    match (&command[..], rest) {
        (b"TIME", []) => {
            let (seconds, micros) = (keyspace.now / 1_000_000, keyspace.now % 1_000_000);
            Ok(Value::Table(list(lua, &[seconds.to_string(), micros.to_string()])?))
        }
        (b"HMGET", [key, fields @ ..]) => {
            let table = lua.create_table_with_capacity(fields.len(), 0)?;
            let hash = keyspace.get(key);
            for field in fields {
                match hash.and_then(|hash| hash.fields.get(field)) {
                    Some(value) => table.raw_push(lua.create_string(value)?)?,
                    None => table.raw_push(false)?,
                }
            }
            Ok(Value::Table(table))
        }
        (b"HSET", [key, fields @ ..]) => {
            let added = fields.chunks_exact(2).filter(|pair| keyspace.set(key, &pair[0], pair[1].clone())).count();
            count(added)
        }
        (b"HDEL", [key, fields @ ..]) => count(fields.iter().filter(|field| keyspace.unset(key, field)).count()),
        (b"UNLINK", keys) => count(keys.iter().filter(|key| keyspace.remove(key)).count()),
        (b"PTTL", [key]) => Ok(Value::Number(keyspace.ttl(key) as f64)),
        (b"PEXPIRE", [key, millis]) => count(usize::from(keyspace.expire(key, number(millis)))),
        (b"HRANDFIELD", [key, most, _]) => {
            let fields = keyspace.some_fields(key, number(most) as usize);
            Ok(Value::Table(flat(lua, fields)?))
        }
        (b"HSCAN", [key, ..]) => {
            let fields = keyspace.some_fields(key, usize::MAX);
            let page = lua.create_table()?;
            page.raw_push("0")?;
            page.raw_push(flat(lua, fields)?)?;
            Ok(Value::Table(page))
        }
        _ => panic!("the simulated Redis does not know {}", String::from_utf8_lossy(&words.join(&b' '))),
    }
}
