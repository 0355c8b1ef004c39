//! Tables for people.

use std::io::{self, Write};

use tables::Column;

/// Prints lines below the heads of their columns, each as wide as it has to be.
pub fn show<T>(out: &mut dyn Write, columns: &[Column<T>], all: &[T]) -> io::Result<()> {
    let heads = columns.iter().map(|column| column.head.to_uppercase());
    let row = |of: &T| {
        let cells = columns.iter().map(|column| (column.cell)(of).to_string());
        // A line has one row.
        let cells = cells.map(|cell| cell.replace('\n', "\\n"));
        cells.collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = std::iter::once(heads.collect())
        .chain(all.iter().map(row))
        .collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).filter_map(width).collect();
    rows.iter().try_for_each(|row| {
        let mut text = String::new();
        for ((cell, column), width) in row.iter().zip(columns).zip(&widths) {
            text += &match column.is_figure {
                false => format!("{cell:<width$}  "),
                true => format!("{cell:>width$}  "),
            };
        }
        writeln!(out, "{}", text.trim_end())
    })
}

#[cfg(test)]
mod tests {
    use tables::Cell;

    use super::*;

    const COLUMNS: &[Column<(&str, u64)>] = &[
        Column {
            head: "x",
            is_figure: false,
            cell: |of| Cell::text(of.0),
        },
        Column {
            head: "n",
            is_figure: true,
            cell: |of| Cell::Count(of.1),
        },
    ];

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut out = Vec::new();
        show(&mut out, COLUMNS, &[("a", 10), ("bcd", 7)]).expect("room");
        assert_eq!(String::from_utf8_lossy(&out), "X     N\na    10\nbcd   7\n");
    }
}
