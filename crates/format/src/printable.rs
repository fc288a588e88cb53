//! Makes untrusted text safe to show on a terminal or in a log.

/// Replaces each control character with U+FFFD, so that the text can neither control a terminal
/// nor end a line.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
