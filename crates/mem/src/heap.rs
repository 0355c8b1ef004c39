//! What the heap keeps of memory that was freed.

/// Gives what is free of the heap back to the system. The C library keeps freed
/// pages below one that is in use; here it looks for them all, which takes it
/// milliseconds and its locks: for a reactor that has nothing to do. Other C
/// libraries than glibc give back by themselves.
#[cold]
pub fn give_back_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer; memory that is in use is left as it is.
    unsafe {
        libc::malloc_trim(0);
    }
}
