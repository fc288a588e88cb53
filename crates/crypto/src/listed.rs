//! Enums with a list of all their variants, which is always complete.

/// Declares an enum with a constant `ALL`. Code that depends on the variant uses an exhaustive `match`;
/// everything else iterates over `ALL`.
#[macro_export]
macro_rules! listed {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All variants: `ALL[variant as usize]` is `variant`.
            pub const ALL: [$name; [$($name::$variant),+].len()] = [$($name::$variant),+];
        }
    };
}
