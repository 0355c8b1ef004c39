//! The target under test.
