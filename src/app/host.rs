//! The name of this machine, for addresses that others are told.

use std::net::SocketAddr;

/// Where the others reach a port that listens at this address: of all interfaces, the name of the machine stands for them.
pub(super) fn address(listener: &str) -> String {
    match listener.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => format!("{}:{}", name(), address.port()),
        // A loopback address or a socket says nothing without the machine; an address of an interface does.
        Ok(address) if !address.ip().is_loopback() => listener.to_owned(),
        _ => format!("{} {listener}", name()),
    }
}

fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
