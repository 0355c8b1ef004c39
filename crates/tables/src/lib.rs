//! Answers of the admin API as tables: which columns each kind has, and how their cells
//! are written and ordered. The command line and the console show the same.
#![forbid(unsafe_code)]

mod cell;
mod columns;

pub use cell::Cell;
pub use columns::{
    AUDIT, CLIENTS, CONNECTIONS, Column, HISTORY, HOSTS, REFUSALS, SESSIONS, figure, text,
};
