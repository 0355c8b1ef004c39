//! What clients may have back after a restart.
