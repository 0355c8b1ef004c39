//! Binds machines to sockets and to the store.
