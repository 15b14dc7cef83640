//! Errors in log lines, with their causes.

use std::{error::Error, fmt, iter::successors};

/// Displays an error and its causes, from the outermost to the root: `the file cannot be written: disk full`.
#[derive(Debug)]
pub struct Causes<'e>(pub &'e (dyn Error + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        successors(self.0.source(), |error| (*error).source()).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Failed(Option<Box<Failed>>, &'static str);

    impl fmt::Display for Failed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.1)
        }
    }

    impl Error for Failed {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.as_deref().map(|source| source as _)
        }
    }

    #[test]
    fn an_error_is_shown_with_its_causes() {
        let root = Failed(None, "the disk is full");
        let error = Failed(Some(Box::new(Failed(Some(Box::new(root)), "no write"))), "not stored");
        assert_eq!(Causes(&error).to_string(), "not stored: no write: the disk is full");
    }
}
