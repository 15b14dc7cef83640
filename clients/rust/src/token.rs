use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};

use crate::Error;

/// Minimum time between two reads of a token file.
const READ_EVERY: Duration = Duration::from_secs(1);

type Value = MetadataValue<Ascii>;

/// The credentials of calls.
pub(crate) enum Token {
    None,
    Fixed(Value),
    File { path: PathBuf, last: Mutex<(Instant, Value)> },
}

impl Token {
    pub(crate) fn fixed(token: &str) -> Result<Self, Error> {
        bearer(token).map(Self::Fixed)
    }

    pub(crate) fn file(path: PathBuf) -> Result<Self, Error> {
        let value = read(&path)?;
        Ok(Self::File { path, last: Mutex::new((Instant::now(), value)) })
    }

    /// Returns the header's value. An unreadable file keeps the last one.
    pub(crate) fn value(&self) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Fixed(value) => Some(value.clone()),
            Self::File { path, last } => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.0.elapsed() >= READ_EVERY {
                    last.0 = Instant::now();
                    match read(path) {
                        Ok(value) => last.1 = value,
                        Err(error) => tracing::warn!(%error, "the token of the last reading is used"),
                    }
                }
                Some(last.1.clone())
            }
        }
    }
}

fn read(path: &Path) -> Result<Value, Error> {
    let wrong = |error: &dyn fmt::Display| Error::Configuration(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    bearer(text.trim()).map_err(|error| wrong(&error))
}

fn bearer(token: &str) -> Result<Value, Error> {
    let wrong = |what: &str| Error::Configuration(what.to_owned());
    if token.is_empty() {
        return Err(wrong("the token is empty"));
    }
    let value = MetadataValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| wrong("the token has characters that no header can hold"))?;
    value.set_sensitive(true);
    Ok(value)
}
