//! Prints the position of each key of a document, with a suggestion for a misspelt one.

use weir_settings::{document, document::Value, suggest};

fn main() {
    let text = "limits: limits.yaml\nlimit_poll: 2s\n";
    let Ok(Some(document)) = document::parse(text) else { return };
    let Value::Map(entries) = document.value else { return };
    for entry in entries {
        let known = ["limits", "limits_poll"];
        let note =
            if known.contains(&&*entry.key) { String::new() } else { suggest::unknown("key", &entry.key, &known) };
        println!("{}:{} {} {note}", entry.mark.line, entry.mark.column, entry.key);
    }
}
