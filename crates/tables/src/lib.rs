//! Answers of the admin API as tables: which columns each kind has, and how their cells
//! are written and ordered. The command line and the console show the same.
#![forbid(unsafe_code)]

mod cell;
mod columns;
mod plain;
mod rates;

pub use cell::Cell;
pub use columns::{
    AUDIT, CLIENTS, CONNECTIONS, Column, EVENTS, HISTORY, HOSTS, OBJECTS, QUOTAS, RATES, REFUSALS,
    SCRUBS, SESSIONS, SNAPSHOT_CHANGES, SNAPSHOT_PARTS, SNAPSHOTS, figure, text,
};
pub use plain::plain;
pub use rates::{
    NamedRates, Ops, Rates, Scale, SizeRates, Slowest, add_times, host_rates, per_second, quantile,
    sample_of, times_between, volume_rates,
};
