//! Who Weir is to servers: from the URL, the settings, or a file that may change.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::settings::{RedisSettings, SentinelSettings};
use crate::{
    settings::Secret,
    store::{Failure, url::Credentials},
};

/// Longest file of a password in bytes.
const MAX_PASSWORD_BYTES: u64 = 4_096;

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// As configured; the password may be in the file instead.
    credentials: Credentials,
    /// Holds the password, if it is not empty.
    file: PathBuf,
}

impl Login {
    /// For servers: settings stand above the URL, part by part.
    pub fn to_servers(url: Option<&Credentials>, settings: &RedisSettings) -> Self {
        let url = url.cloned().unwrap_or_default();
        let or = |set: &String, other: String| if set.is_empty() { other } else { set.clone() };
        let password = if settings.password.is_empty() { url.password } else { settings.password.clone() };
        let credentials = Credentials { user: or(&settings.username, url.user), password };
        Self { credentials, file: settings.password_file.clone() }
    }

    /// For Sentinels.
    pub fn to_sentinels(settings: &SentinelSettings) -> Self {
        let credentials = Credentials { user: settings.username.clone(), password: settings.password.clone() };
        Self { credentials, file: settings.password_file.clone() }
    }

    /// Whether there is a user without any password.
    pub fn lacks_password(&self) -> bool {
        !self.credentials.user.is_empty() && self.credentials.password.is_empty() && self.file.as_os_str().is_empty()
    }

    /// The credentials as they are now; `None` where none are configured.
    ///
    /// # Errors
    /// [`Failure::Connect`] when the file gives no password.
    pub async fn read(&self) -> Result<Option<Credentials>, Failure> {
        if self.file.as_os_str().is_empty() {
            return Ok((!self.credentials.password.is_empty()).then(|| self.credentials.clone()));
        }
        let file = self.file.clone();
        let password = match tokio::task::spawn_blocking(move || password(&file)).await {
            Ok(password) => password.map_err(|error| Failure::Connect(error.into()))?,
            Err(error) => return Err(Failure::Connect(error.to_string().into())),
        };
        Ok(Some(Credentials { user: self.credentials.user.clone(), password }))
    }

    /// Whether the file, where there is one, gives a password.
    ///
    /// # Errors
    /// A sentence with the file's path.
    pub fn check_file(&self) -> Result<(), String> {
        if self.file.as_os_str().is_empty() { Ok(()) } else { password(&self.file).map(drop) }
    }
}

/// The password in a file, without the line's end.
fn password(path: &Path) -> Result<Secret, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("password file {}: {what}", path.display());
    let read = || -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(MAX_PASSWORD_BYTES + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| wrong(&error))?;
    if text.len() as u64 > MAX_PASSWORD_BYTES {
        return Err(wrong(&format_args!("over {MAX_PASSWORD_BYTES} bytes")));
    }
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(wrong(&"empty")),
        text => Ok(text.to_owned().into()),
    }
}
