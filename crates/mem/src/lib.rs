//! Regions, buffer pools and the `BufRange` handle.
