//! `weir schema`.

use std::{fs, path::Path};

use crate::support::run;

#[test]
fn schemas_are_those_of_the_repository() {
    for what in ["policy", "settings"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("config/{what}.schema.json"));
        let printed = run(&["schema", what]);
        assert_eq!((printed.code, printed.err.as_str()), (0, ""));
        assert!(printed.out == fs::read_to_string(&path).expect("a file"), "not as {}", path.display());
    }
    assert_eq!(run(&["schema", "limits"]).code, 2);
}
