//! NVMe over Fabrics as sans-IO machines, controller and host side.
