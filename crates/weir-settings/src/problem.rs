//! Problems of a file, with their positions.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A position in a file: line and column, both from 1. Line 0: no position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file; empty if there is none.
    pub file: PathBuf,
    /// The position in the file.
    pub mark: Mark,
    /// The invalid field, such as `limits[0].gcra.count`; empty if the position is enough.
    pub field: String,
    /// A message: the problem, and a correct value.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.as_os_str().is_empty() {
            write!(f, "{}:", self.file.display())?;
            if self.mark.line > 0 {
                write!(f, "{}:{}:", self.mark.line, self.mark.column)?;
            }
            write!(f, " ")?;
        }
        write!(f, "{}", self.message)
    }
}

/// All problems that were found; never empty as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// Maximum number of problems reported for one file.
const MAX_PROBLEMS: usize = 50;

impl Problems {
    /// Adds a problem at `mark`. [`Problems::in_file`] sets its file.
    pub fn add(&mut self, mark: Mark, field: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < MAX_PROBLEMS {
            self.0.push(Problem { file: PathBuf::new(), mark, field: field.into(), message: message.into() });
        }
    }

    /// Sets the file of all problems.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        for problem in &mut self.0 {
            problem.file = file.to_owned();
        }
        self
    }

    /// Makes the only problem of a file, without a position.
    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(Mark::default(), "", message);
        problems.in_file(file)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_problems_of_a_file_are_kept() {
        let mut problems = Problems::default();
        (1..=60).for_each(|line| problems.add(Mark { line, column: 1 }, "", "wrong"));
        assert_eq!(
            problems.0.iter().map(|problem| problem.mark.line).collect::<Vec<_>>(),
            (1..=50).collect::<Vec<_>>()
        );
    }
}
