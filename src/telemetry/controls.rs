//! Characters in text of clients that would control a terminal: they hide or move text, or start a new line.

use std::borrow::Cow;

/// Whether a character controls a terminal, separates lines, or changes the direction of the text around it.
pub fn is_control(letter: char) -> bool {
    // Arabic letter mark, direction marks, separators with embeddings and overrides, isolates.
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes these characters as JSON does, in JSON or other text. Line breaks and tabs stay.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    escape(text, |letter| is_control(letter) && !matches!(letter, '\n' | '\t'))
}

/// Escapes these characters and line breaks and tabs.
pub fn on_one_line(text: &str) -> Cow<'_, str> {
    escape(text, is_control)
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let escaped = |letter| match letter {
        letter if !is_escaped(letter) => letter.to_string(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        letter => format!("\\u{:04x}", u32::from(letter)),
    };
    text.chars().map(escaped).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_as_in_json() {
        let text = "a\tb\nc\rd\u{1b}[2J\u{7f}\u{9b}2J\u{202e}\u{2028}\u{2066}é\u{200b}";
        let escaped = "a\tb\nc\\rd\\u001b[2J\\u007f\\u009b2J\\u202e\\u2028\\u2066é\u{200b}";
        assert_eq!(escape_controls(text), escaped);
        assert_eq!(on_one_line(text), escaped.replace('\t', "\\t").replace('\n', "\\n"));
        let json = serde_json::to_string(text).unwrap();
        assert_eq!(serde_json::from_str::<String>(&escape_controls(&json)).unwrap(), text);
        assert!(matches!(escape_controls("plain é\n"), Cow::Borrowed(_)));
    }
}
