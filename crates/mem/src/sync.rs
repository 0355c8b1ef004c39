//! Atomics of what threads share without locks: the standard library's, but in a model of
//! threads (`cargo xtask shuttle`) a scheduler chooses before each operation which
//! thread goes on.

#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(shuttle)]
pub use chosen::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

/// Not the scheduler's own atomics: these lie in mapped memory, zero at first.
#[cfg(shuttle)]
mod chosen {
    use std::ops::Deref;
    use std::sync::atomic;

    /// An atomic that lets the scheduler choose whenever it is reached.
    #[repr(transparent)]
    pub struct Chosen<T>(T);

    impl<T> Deref for Chosen<T> {
        type Target = T;

        fn deref(&self) -> &T {
            let is_in_model = shuttle::current::try_get_current_task().is_some();
            if is_in_model && !std::thread::panicking() {
                shuttle::thread::yield_now();
            }
            &self.0
        }
    }

    /// Made of mapped memory alone.
    pub type AtomicI32 = Chosen<atomic::AtomicI32>;

    macro_rules! chosen {
        ($($name:ident of $value:ty),*) => {$(
            pub type $name = Chosen<atomic::$name>;

            impl $name {
                pub const fn new(value: $value) -> Self {
                    Chosen(atomic::$name::new(value))
                }
            }
        )*};
    }

    chosen!(
        AtomicI64 of i64,
        AtomicU32 of u32,
        AtomicU64 of u64,
        AtomicUsize of usize
    );
}
