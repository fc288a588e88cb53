//! Rules that a test can break by name, to verify that the resulting failure is detected. In all other
//! builds every rule holds.

/// Defines `holds` for an enum of rules and, in tests, `break_rule`.
macro_rules! breakable {
    ($rule:ident) => {
        /// Whether a rule holds.
        #[cfg(not(test))]
        pub const fn holds(_: $rule) -> bool {
            true
        }

        #[cfg(test)]
        thread_local! {
            static BROKEN: std::cell::Cell<Option<$rule>> = const { std::cell::Cell::new(None) };
        }

        /// Whether a rule holds on this thread.
        #[cfg(test)]
        pub fn holds(rule: $rule) -> bool {
            BROKEN.get() != Some(rule)
        }

        /// Breaks the given rule on this thread; `None` restores all rules.
        #[cfg(test)]
        pub fn break_rule(rule: Option<$rule>) {
            BROKEN.set(rule);
        }
    };
}
pub(crate) use breakable;
