//! A service that can be killed and paused, and whose clock can be set.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use weir_test_redis::{Process, free_port};

use super::Outcome;

/// The clock of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The machine's clock.
    True,
    /// A clock, also the monotonic one, that runs slow by 0.8 %; 1 % is allowed.
    Slow,
    /// A wall clock that can be set.
    Set,
}

pub struct Service {
    /// The gRPC address, the same after a restart.
    pub address: String,
    command: Vec<String>,
    dir: PathBuf,
    process: Option<Process>,
}

impl Service {
    /// Starts a service with these settings, and its own directory.
    pub fn start(weir: &Path, faketime: &Path, clock: Clock, settings: &[(&str, &str)], dir: &Path) -> Outcome<Self> {
        fs::create_dir(dir)?;
        let address = format!("127.0.0.1:{}", free_port());
        let preload = format!("LD_PRELOAD={}", faketime.display());
        let time = |text: &str| fs::write(dir.join("time"), text);
        let mut command = vec!["env".to_owned()];
        command.extend(settings.iter().map(|(name, value)| format!("{name}={value}")));
        command.extend([format!("WEIR_GRPC__LISTEN={address}"), "WEIR_HTTP__LISTEN=127.0.0.1:0".to_owned()]);
        match clock {
            Clock::True => {}
            Clock::Slow => command.extend([preload, "FAKETIME=+0 x0.992".to_owned()]),
            Clock::Set => {
                time("+0")?;
                let of_wall = "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned();
                let file = format!("FAKETIME_TIMESTAMP_FILE={}", dir.join("time").display());
                command.extend([preload, of_wall, file, "FAKETIME_CACHE_DURATION=1".to_owned()]);
            }
        }
        command.extend([weir.canonicalize()?.display().to_string(), "serve".to_owned()]);
        let mut service = Self { address, command, dir: dir.to_owned(), process: None };
        service.restart()?;
        Ok(service)
    }

    /// Starts the service, also after [`Service::kill`].
    pub fn restart(&mut self) -> Outcome<()> {
        let log = OpenOptions::new().append(true).create(true).open(self.dir.join("log"))?;
        let command: Vec<_> = self.command.iter().map(String::as_str).collect();
        self.process = Some(Process::start(&command, &self.dir, &log));
        Ok(())
    }

    /// Kills the service (SIGKILL).
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Pauses the service (SIGSTOP).
    pub fn pause(&self) -> Outcome<()> {
        self.process.as_ref().map(Process::pause).ok_or_else(|| "it does not run".into())
    }

    /// Continues the service (SIGCONT).
    pub fn resume(&self) -> Outcome<()> {
        self.process.as_ref().map(Process::resume).ok_or_else(|| "it does not run".into())
    }

    /// Sets a clock that can be set, by its offset from the machine's.
    pub fn set_clock(&self, offset: &str) -> Outcome<()> {
        Ok(fs::write(self.dir.join("time"), offset)?)
    }

    /// Checks that the service runs and has not panicked.
    pub fn assert_sound(&self) -> Outcome<()> {
        let log = fs::read_to_string(self.dir.join("log"))?;
        let runs = self.process.as_ref().is_some_and(|process| !process.has_ended());
        if runs && !log.contains("panicked") { Ok(()) } else { Err(format!("a service has failed:\n{log}").into()) }
    }
}
