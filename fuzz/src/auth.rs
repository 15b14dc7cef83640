//! The file that says who may do what.

use std::time::SystemTime;

use weir::auth::{Denied, TokenHash, file as auth_file, token::PREFIX};

use super::policies::check_places;

/// A file is refused with places and shows no token, or has exactly the clients that it names.
pub fn file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match auth_file::parse(text) {
        Ok(callers) => {
            let stranger = TokenHash::of(b"a token that no file has the hash of");
            assert_eq!(callers.grant(Some(&stranger), None, SystemTime::UNIX_EPOCH), Err(Denied::Unknown));
        }
        Err(problems) => {
            check_places(text, &problems);
            assert!(!problems.to_string().contains(PREFIX), "{problems}");
        }
    }
}
