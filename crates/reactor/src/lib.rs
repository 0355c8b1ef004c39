//! One reactor a core: drivers, sockets, timers, mail.
