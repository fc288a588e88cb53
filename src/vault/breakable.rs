//! Rules that a test can break by name, to verify that the resulting failure is detected. In all other
//! builds every rule holds.

/// Defines `holds` for the `Rule` of the enclosing module and, in tests, `break_rule`.
macro_rules! breakable {
    () => {
        /// Whether a rule holds.
        #[cfg(not(test))]
        pub(super) const fn holds(_: Rule) -> bool {
            true
        }

        #[cfg(test)]
        thread_local! {
            static BROKEN: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
        }

        /// Whether a rule holds on this thread.
        #[cfg(test)]
        pub(super) fn holds(rule: Rule) -> bool {
            BROKEN.get() != Some(rule)
        }

        /// Breaks the given rule on this thread; `None` restores all rules.
        #[cfg(test)]
        pub(super) fn break_rule(rule: Option<Rule>) {
            BROKEN.set(rule);
        }
    };
}
pub(super) use breakable;
