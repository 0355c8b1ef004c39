//! Tables that are ordered, filtered and turned by links and a form.

use maud::{Markup, html};
use tables::{Cell, Column};

/// Lines of a page.
const LINES: usize = 200;

/// Characters of a word that is not broken.
const WORD_MAX: usize = 40;

/// How a table is asked for; of a query, what is unknown is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableQuery {
    /// The head of the column that it is ordered by; one that is not there: as it came.
    pub sort: Option<String>,
    /// The largest first.
    pub is_descending: bool,
    /// What a line has in any of its cells; case does not count.
    pub filter: String,
    /// From 0 on.
    pub page: usize,
}

impl TableQuery {
    /// From the names and values of a query.
    #[must_use]
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> TableQuery {
        let mut query = TableQuery::default();
        for (name, value) in pairs {
            match name {
                "sort" => query.sort = Some(value.to_owned()).filter(|head| !head.is_empty()),
                "order" => query.is_descending = value == "descending",
                "filter" => query.filter = value.to_owned(),
                "page" => query.page = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        query
    }

    /// The address of the same table.
    fn address(&self, path: &str) -> String {
        let mut parts = Vec::new();
        if let Some(head) = &self.sort {
            parts.push(format!("sort={}", encoded(head)));
        }
        if self.is_descending {
            parts.push("order=descending".to_owned());
        }
        if !self.filter.is_empty() {
            parts.push(format!("filter={}", encoded(&self.filter)));
        }
        if self.page > 0 {
            parts.push(format!("page={}", self.page));
        }
        match parts.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?{}", parts.join("&")),
        }
    }
}

/// A text as a part of an address (RFC 3986, section 2.1).
fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let one = |byte: u8| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// Lines as a table. `none`: what is said where there is no line at all.
pub(crate) fn table<T>(
    path: &str,
    caption: &str,
    columns: &[Column<T>],
    all: &[T],
    query: &TableQuery,
    none: &Markup,
) -> Markup {
    if all.is_empty() {
        return none.clone();
    }
    let row = |of: &T| columns.iter().map(|column| (column.cell)(of)).collect();
    let mut rows: Vec<Vec<Cell>> = all.iter().map(row).collect();
    let wanted = query.filter.to_lowercase();
    let has = |cell: &Cell| cell.to_string().to_lowercase().contains(&wanted);
    rows.retain(|row| wanted.is_empty() || row.iter().any(has));
    let heads = || columns.iter().map(|column| column.head);
    let sorted = query.sort.as_deref();
    let sorted = sorted.and_then(|head| heads().position(|own| own == head));
    if let Some(at) = sorted {
        rows.sort_by(|a, b| match query.is_descending {
            false => a[at].order(&b[at]),
            true => b[at].order(&a[at]),
        });
    }
    let pages = rows.len().div_ceil(LINES).max(1);
    let page = query.page.min(pages - 1);
    let shown = rows.iter().skip(page * LINES).take(LINES);
    html! {
        (filter(path, columns, query, rows.len(), all.len()))
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead {
                    tr {
                        @for (at, column) in columns.iter().enumerate() {
                            (head(path, column, query, sorted == Some(at)))
                        }
                    }
                }
                tbody {
                    @for row in shown {
                        tr {
                            @for (cell, column) in row.iter().zip(columns) {
                                td class=(class(cell, column.is_figure)) data-head=(column.head) {
                                    (cell.to_string())
                                }
                            }
                        }
                    }
                }
            }
        }
        (turn(path, query, page, pages))
    }
}

/// How a cell stands: a word that is too long for a column is broken.
fn class(cell: &Cell, is_figure: bool) -> &'static str {
    let is_long = |text: &String| {
        let mut words = text.split([' ', '-']);
        words.any(|word| word.chars().count() > WORD_MAX)
    };
    match cell {
        _ if is_figure => "figure",
        Cell::Text(text) if is_long(text) => "long",
        _ => "",
    }
}

fn head<T>(path: &str, column: &Column<T>, query: &TableQuery, is_sorted: bool) -> Markup {
    // What is ordered already turns about; figures are of interest where they are large.
    let is_descending = match is_sorted {
        true => !query.is_descending,
        false => column.is_figure,
    };
    let other = TableQuery {
        sort: Some(column.head.to_owned()),
        is_descending,
        page: 0,
        ..query.clone()
    };
    let order = match query.is_descending {
        true => "descending",
        false => "ascending",
    };
    html! {
        th scope="col" class=[column.is_figure.then_some("figure")]
            aria-sort=[is_sorted.then_some(order)]
        {
            a href=(other.address(path)) {
                (column.head)
                @if is_sorted {
                    span aria-hidden="true" { @if query.is_descending { " ↓" } @else { " ↑" } }
                }
            }
        }
    }
}

fn filter<T>(
    path: &str,
    columns: &[Column<T>],
    query: &TableQuery,
    found: usize,
    all: usize,
) -> Markup {
    let is_by = |head: &str| query.sort.as_deref() == Some(head);
    html! {
        form.filter action=(path) method="get" role="search" {
            label {
                "Lines with"
                input type="search" name="filter" value=(query.filter) autocomplete="off";
            }
            label {
                "Ordered by"
                select name="sort" {
                    option value="" { "as they came" }
                    @for column in columns {
                        option value=(column.head) selected[is_by(column.head)] { (column.head) }
                    }
                }
            }
            label.choice {
                input type="checkbox" name="order" value="descending" checked[query.is_descending];
                "largest first"
            }
            button { "Show" }
            span.soft role="status" { (found) " of " (all) }
        }
    }
}

fn turn(path: &str, query: &TableQuery, page: usize, pages: usize) -> Markup {
    let to = |page: usize| {
        let other = TableQuery {
            page,
            ..query.clone()
        };
        other.address(path)
    };
    html! {
        @if pages > 1 {
            nav.pages aria-label="Parts of the table" {
                @if page > 0 { a href=(to(page - 1)) rel="prev" { "← Before" } }
                span { "Part " (page + 1) " of " (pages) }
                @if page + 1 < pages { a href=(to(page + 1)) rel="next" { "After →" } }
            }
        }
    }
}
