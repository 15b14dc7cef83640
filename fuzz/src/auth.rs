//! The credentials file.

use std::time::SystemTime;

use weir::auth::{AuthError, TokenHash, file as auth_file, token::PREFIX};

use super::policies::check_positions;

/// A file is rejected with positions and no error shows a token, or it has exactly the clients that it names.
pub fn file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match auth_file::parse(text) {
        Ok(credentials) => {
            let stranger = TokenHash::of(b"a token that no file has the hash of");
            assert_eq!(
                credentials.authenticate(Some(&stranger), None, SystemTime::UNIX_EPOCH),
                Err(AuthError::Unknown)
            );
        }
        Err(problems) => {
            check_positions(text, &problems);
            assert!(!problems.to_string().contains(PREFIX), "{problems}");
        }
    }
}
