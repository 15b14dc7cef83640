//! Floor 1, what settings are written in, for every part that has some.

mod header_style;
mod listen;
mod traffic;

pub use header_style::HeaderStyle;
pub use listen::Listen;
pub use traffic::Traffic;
pub use weir_settings::{Secret, Time, Watch};
