//! Words that anybody may have chosen, as a terminal or a log can show them.

/// The same with a mark in place of each control character: nothing steers a terminal or ends a line.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
