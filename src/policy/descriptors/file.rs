//! The file format.

use crate::{
    algorithm::Bounds,
    policy::{Domain, Problems, document::Node},
};

/// Reads one file's document into its domain.
///
/// # Errors
/// All that is wrong with it, each with its place.
pub fn read(document: &Node, bounds: &Bounds) -> Result<Domain, Problems> {
    let _ = (document, bounds);
    Ok(Domain::new(""))
}
