//! Tables that are ordered, filtered and turned by links and a form.

use std::ops::Range;

use maud::{Markup, html};
use tables::{Cell, Column};

use tables::plain;

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
        match (parts.is_empty(), path.contains('?')) {
            (true, _) => path.to_owned(),
            (false, false) => format!("{path}?{}", parts.join("&")),
            (false, true) => format!("{path}&{}", parts.join("&")),
        }
    }

    /// Whether a line with these cells is asked for.
    pub(crate) fn has<'a>(&self, mut cells: impl Iterator<Item = &'a str>) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || cells.any(|cell| cell.to_lowercase().contains(&wanted))
    }
}

/// An address with these names and values as its query.
pub(crate) fn address<'a>(
    path: &str,
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let pairs = pairs.into_iter();
    let pairs = pairs.map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// A text as a part of an address (RFC 3986, section 2.1).
pub(crate) fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let one = |byte: u8| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// A table of lines.
pub(crate) struct Table<'a, T: 'static> {
    /// Its address; what it keeps of a query stands in it.
    pub path: &'a str,
    pub caption: &'a str,
    pub columns: &'static [Column<T>],
    /// What can be done with a line.
    pub action: Option<&'a dyn Fn(&T) -> Markup>,
    /// What is said where there is no line at all.
    pub none: Markup,
}

impl<T> Table<'_, T> {
    /// These lines, as far as they are asked for.
    pub fn of(&self, all: &[T], query: &TableQuery) -> Markup {
        if all.is_empty() {
            return self.none.clone();
        }
        let columns = self.columns;
        let row = |of| -> (&T, Vec<Cell>) {
            (of, columns.iter().map(|column| (column.cell)(of)).collect())
        };
        let mut rows: Vec<_> = all.iter().map(row).collect();
        rows.retain(|(_, cells)| {
            let texts: Vec<_> = cells.iter().map(Cell::to_string).collect();
            query.has(texts.iter().map(String::as_str))
        });
        let sorted = query.sort.as_deref();
        let sorted = sorted.and_then(|head| columns.iter().position(|own| own.head == head));
        if let Some(at) = sorted {
            rows.sort_by(|(_, a), (_, b)| match query.is_descending {
                false => a[at].order(&b[at]),
                true => b[at].order(&a[at]),
            });
        }
        let part = Part::of(query, rows.len(), LINES);
        html! {
            (filter(self.path, columns, query, rows.len(), all.len()))
            div.scroll tabindex="0" role="region" aria-label=(self.caption) {
                table {
                    caption { (self.caption) }
                    thead {
                        tr {
                            @for (at, column) in columns.iter().enumerate() {
                                (head(self.path, column, query, sorted == Some(at)))
                            }
                            @if self.action.is_some() { th scope="col" { "do" } }
                        }
                    }
                    tbody {
                        @for (of, cells) in &rows[part.lines.clone()] {
                            (self.row(of, cells))
                        }
                    }
                }
            }
            (part.turn(self.path, query))
        }
    }

    fn row(&self, of: &T, cells: &[Cell]) -> Markup {
        html! {
            tr {
                @for (cell, column) in cells.iter().zip(self.columns) {
                    td class=(class(cell, column.is_figure)) data-head=(column.head) {
                        (plain(&cell.to_string()))
                    }
                }
                @if let Some(action) = self.action {
                    td.action data-head="do" { (action(of)) }
                }
            }
        }
    }
}

/// The part of a long list that a page shows.
pub(crate) struct Part {
    /// Which of all.
    pub lines: Range<usize>,
    page: usize,
    pages: usize,
}

impl Part {
    /// The part that a query asks for; one that is not there is the last.
    pub fn of(query: &TableQuery, count: usize, lines: usize) -> Part {
        let pages = count.div_ceil(lines).max(1);
        let page = query.page.min(pages - 1);
        Part {
            lines: page * lines..count.min((page + 1) * lines),
            page,
            pages,
        }
    }

    /// Links to the parts before and after it.
    pub fn turn(&self, path: &str, query: &TableQuery) -> Markup {
        let to = |page: usize| {
            let other = TableQuery {
                page,
                ..query.clone()
            };
            other.address(path)
        };
        html! {
            @if self.pages > 1 {
                nav.pages aria-label="Parts of the list" {
                    @if self.page > 0 { a href=(to(self.page - 1)) rel="prev" { "← Before" } }
                    span { "Part " (self.page + 1) " of " (self.pages) }
                    @if self.page + 1 < self.pages {
                        a href=(to(self.page + 1)) rel="next" { "After →" }
                    }
                }
            }
        }
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
            (kept(path))
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

/// What the address of a table says beside how it is asked for: a form leaves it out else.
fn kept(path: &str) -> Markup {
    let query = path.split_once('?').map(|(_, query)| query);
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    html! {
        @for (name, value) in pairs {
            input type="hidden" name=(name) value=(decoded(value));
        }
    }
}

/// What [`encoded`] has made of a text.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(digits, 16).ok());
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The form that leaves only what has a text.
pub(crate) fn search(path: &str, query: &TableQuery, found: usize, all: usize) -> Markup {
    html! {
        form.filter action=(path) method="get" role="search" {
            (kept(path))
            label {
                "Those with"
                input type="search" name="filter" value=(query.filter) autocomplete="off";
            }
            button { "Show" }
            span.soft role="status" { (found) " of " (all) }
        }
    }
}
