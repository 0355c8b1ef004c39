//! NVMe/TCP PDUs.
