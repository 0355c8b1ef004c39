//! Tests with real clients.
