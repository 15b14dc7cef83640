//! Floor 6, the surfaces. Each decodes what comes in, asks the limiter, and encodes its answer; in between they are the
//! same.

mod at_hand;
pub mod connection;
pub mod decode;
pub mod drain;
pub mod encode;
pub mod farewell;
pub mod fields;
pub mod gate;
pub mod grpc;
pub mod headers;
pub mod http;
pub mod in_flight;
pub mod lifetime;
pub mod listener;
pub mod message;
pub mod observe;
pub mod rate;
pub mod rls;
pub mod routes;
pub mod server;
pub mod status;
pub mod tls;
pub mod watch;
pub mod workers;

pub use drain::Drain;
pub use gate::Gate;
pub use listener::Listener;
pub use server::{ConnectionSettings, Server};
pub use tls::Tls;
pub use workers::Workers;
