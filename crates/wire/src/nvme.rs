//! NVMe base structures.
