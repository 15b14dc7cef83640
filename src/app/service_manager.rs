//! systemd's sd_notify protocol: a service of `Type=notify` reports that it serves, and that it shuts down.

#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::{
    env,
    ffi::OsStr,
    io,
    os::unix::{
        ffi::OsStrExt as _,
        net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

use tracing::warn;

/// Time for which a service manager may be too busy to read.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a state, such as `READY=1`, to the socket of the service manager, if there is one.
pub(super) fn notify(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, state) {
        warn!(socket = %socket.display(), %error, "cannot notify the service manager");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let datagrams = UnixDatagram::unbound()?;
    // A service manager that does not read must not stop the service.
    datagrams.set_write_timeout(Some(TIMEOUT))?;
    datagrams.send_to_addr(state.as_bytes(), &address(socket)?).map(drop)
}

/// A socket whose name starts with `@` is in Linux's abstract namespace.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(socket)
}
