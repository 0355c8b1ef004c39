//! The pages of the console: from answers of the admin API to HTML. No socket, no request:
//! `admin` asks and serves.
//!
//! Pages are whole without a script: tables are sorted, filtered and turned by links and
//! forms. The script asks again for what a page shows, and puts it in its place. Nothing is
//! fetched from elsewhere, nothing stands inline, so that the strictest policy holds.
#![forbid(unsafe_code)]

mod configuration;
mod layout;
mod objects;
mod overview;
mod problem;
mod table;
#[cfg(test)]
mod tests;
mod views;

pub use configuration::configuration;
pub use layout::{Asset, Page, asset};
pub use objects::{ObjectsPage, objects};
pub use overview::overview;
pub use problem::problem;
pub use table::TableQuery;
pub use views::{audit, connections, history, hosts, nfs_clients, refusals, sessions};
