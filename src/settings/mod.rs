//! Floor 1, what settings are written in, for every part that has some.

mod header_style;

pub use header_style::HeaderStyle;
pub use weir_server::{Listen, Traffic};
pub use weir_settings::{Secret, Time, Watch};
