//! The address that this replica advertises to other replicas and operators.

use std::net::SocketAddr;

/// Returns the address to advertise for a listener. The host name replaces an unspecified address (all interfaces).
pub(super) fn address(listener: &str) -> String {
    match listener.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => format!("{}:{}", name(), address.port()),
        // A loopback address or a socket is meaningless without the host; an interface's address is not.
        Ok(address) if !address.ip().is_loopback() => listener.to_owned(),
        _ => format!("{} {listener}", name()),
    }
}

fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
