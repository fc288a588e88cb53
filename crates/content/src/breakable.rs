//! Rules that a test can break by name, to verify that the resulting failure is detected. In all other
//! builds every rule holds.

/// Defines `holds` for an enum of rules and, under a condition for `cfg`, `break_rule`.
#[macro_export]
macro_rules! breakable {
    ($rule:ident if $($cfg:tt)+) => {
        /// Whether a rule holds.
        #[cfg(not($($cfg)+))]
        pub const fn holds(_: $rule) -> bool {
            true
        }

        #[cfg($($cfg)+)]
        thread_local! {
            static BROKEN: std::cell::Cell<Option<$rule>> = const { std::cell::Cell::new(None) };
        }

        /// Whether a rule holds on this thread.
        #[cfg($($cfg)+)]
        pub fn holds(rule: $rule) -> bool {
            BROKEN.get() != Some(rule)
        }

        /// Breaks the given rule on this thread; `None` restores all rules.
        #[cfg($($cfg)+)]
        pub fn break_rule(rule: Option<$rule>) {
            BROKEN.set(rule);
        }
    };
}
