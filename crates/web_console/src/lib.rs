//! The pages of the console: from answers of the admin API to HTML. No socket, no request:
//! `admin` asks and serves.
//!
//! Pages are whole without a script: tables are sorted, filtered and turned by links and
//! forms. The script asks again for what a page shows, and puts it in its place. Nothing is
//! fetched from elsewhere, nothing stands inline, so that the strictest policy holds.
#![forbid(unsafe_code)]

mod change;
mod chart;
mod connect;
mod difference;
mod drain;
mod evict;
mod form;
mod generations;
mod layout;
mod objects;
mod overview;
mod performance;
mod problem;
mod table;
#[cfg(test)]
mod tests;
mod views;

pub use change::{Proposal, editor, plan};
pub use connect::{ConnectPage, connect};
pub use drain::drain;
pub use evict::{Evictable, evict, evicted};
pub use form::{FieldForm, FormField, ObjectForm, object_form};
pub use generations::{generation, history};
pub use layout::{Asset, Page, asset};
pub use objects::{ObjectsPage, inner_objects, kind_title, objects};
pub use overview::overview;
pub use performance::{Measured, host_performance, performance, volume_performance};
pub use problem::problem;
pub use table::TableQuery;
pub use views::{audit, connections, events, hosts, nfs_clients, refusals, sessions};
