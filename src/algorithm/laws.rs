//! The laws, tested over the whole list of algorithms.
