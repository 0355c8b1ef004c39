//! The screen: a head, the tabs, a table or what else is chosen, and what keys do.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Row, Span};
use ratatui::widgets::{Clear, Paragraph, Sparkline, Wrap};
use tables::Cell;

use crate::app::{App, HISTORY, Mode};
use crate::look::Evicts;
use crate::rows::Between;
use crate::sheet::{Line, Sheet, TABS, WAIT};

/// Between columns.
const GAP: usize = 1;
/// What names take at least, or a quarter of the screen.
const NAME_MIN: usize = 12;
/// So that columns do not jump with every figure.
const FIGURE_MIN: usize = 6;
/// The first column of words takes no more.
const TEXT_MAX: usize = 48;

const HELP: &str = "\
1 to 6, Tab    hosts, volumes, connections, reactors, NFS clients, events
Up, Down       choose a line
Left, Right    more columns
Enter          one line, with its last 60 looks
s, r           order by the next column; turn the order around
/              lines with a text alone; Esc: all
k              end what is chosen: asks first
q              end

wait           r its data comes, q its turn comes, b its volume is at it,
               s its answer is sent
await, p50 ..  of one I/O in 64, over the last 10 looks
share          a reactor's I/Os by those of the mean reactor";

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws all of it.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &App) {
    let rows = [1, 1, 0, 1].map(|rows| match rows {
        0 => Constraint::Min(0),
        rows => Constraint::Length(rows),
    });
    let [head, tabs, middle, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(head_row(app), head);
    frame.render_widget(tabs_row(app, tabs.width.into()), tabs);
    match (&app.mode, app.chosen()) {
        (Mode::Help, _) => {
            frame.render_widget(Clear, middle);
            frame.render_widget(Paragraph::new(HELP), middle);
        }
        (Mode::Detail, Some(line)) => detail(frame, middle, app, line),
        _ => table(frame, middle, app),
    }
    frame.render_widget(foot_row(app), foot);
}

/// A text of a peer or of weft, without what would command a terminal or turn it around.
fn plain(text: &str) -> String {
    let is_fine = |c: char| {
        let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}');
        !c.is_control() && !turns
    };
    let shown = |c: char| if is_fine(c) { c } else { '?' };
    text.chars().map(shown).collect()
}

fn head_row(app: &App) -> Row<'static> {
    let Some(look) = app.looks.last() else {
        return Row::styled("weft: no look yet", BOLD);
    };
    let figures = &look.figures;
    let open: u64 = figures.connections.values().sum();
    let mut text = format!(
        "weft  {}  up {}",
        clock(figures.unix_ms),
        Cell::Duration(figures.uptime_ns / 1_000_000)
    );
    if let Some(between) = Between::of(&app.looks) {
        let sum = |of: fn(&crate::rows::ReactorRow) -> f64| {
            let reactors = between.reactors();
            reactors.iter().map(of).sum::<f64>().round() as u64
        };
        text += &format!(
            "  {} I/O/s  {}/s",
            sum(|of| of.ios_per_s),
            Cell::Bytes(sum(|of| of.bytes_per_s))
        );
    }
    text += &format!(
        "  {open} conn  {} of {}",
        Cell::Bytes(figures.memory_bytes),
        Cell::Bytes(figures.memory_max_bytes)
    );
    if look.connections.silent_reactors > 0 {
        text += &format!("  {} reactors are silent", look.connections.silent_reactors);
    }
    Row::styled(text, BOLD)
}

/// Hours, minutes and seconds, UTC.
fn clock(unix_ms: u64) -> String {
    let time = Cell::Time(unix_ms / 1000).to_string();
    time.get(11..20).unwrap_or_default().to_owned()
}

fn tabs_row(app: &App, width: usize) -> Row<'static> {
    let names = |of: fn(&crate::sheet::Tab) -> &'static str| {
        let names = (1..)
            .zip(&TABS)
            .map(|(at, tab)| format!("{at} {}", of(tab)));
        names.collect::<Vec<_>>()
    };
    let (long, gap) = (names(|tab| tab.name), 2);
    let wide: usize = long.iter().map(|name| name.len() + gap).sum();
    let (names, gap) = match wide <= width {
        true => (long, "  "),
        false => (names(|tab| tab.short), " "),
    };
    let spans = names.into_iter().enumerate().flat_map(|(at, name)| {
        let style = if at == app.tab { CHOSEN } else { Style::new() };
        [Span::styled(name, style), Span::raw(gap)]
    });
    Row::from_iter(spans)
}

fn foot_row(app: &App) -> Row<'static> {
    let alarm = |text: String| Row::styled(text, BOLD.fg(Color::Red));
    match &app.mode {
        Mode::Confirm(what) => {
            let (kind, name) = match what {
                Evicts::Connection(id) => ("connection", id),
                Evicts::Host(name) => ("host", name),
                Evicts::NfsClient(id) => ("NFS client", id),
            };
            return alarm(format!("end {kind} {}? y: yes, else no", plain(name)));
        }
        Mode::Filter => {
            return Row::raw(format!("/{}_  Enter: fine, Esc: all", plain(&app.filter)));
        }
        Mode::Help => return Row::raw("any key: back"),
        Mode::Detail => return Row::raw("Up, Down: scroll  k: evict  Esc: back"),
        Mode::Table => {}
    }
    if let Some(why) = &app.fails {
        return alarm(format!(
            "weft does not answer; asking again: {}",
            plain(why)
        ));
    }
    if let Some(message) = &app.message {
        return Row::styled(plain(message), BOLD);
    }
    let (view, heads) = (app.view(), &app.sheet().heads);
    let arrow = if view.ascends { '\u{2191}' } else { '\u{2193}' };
    let order = heads
        .get(view.order)
        .map(|(name, _)| format!("{name}{arrow}  "));
    let filter = match &*app.filter {
        "" => String::new(),
        filter => format!("with \"{}\"  ", plain(filter)),
    };
    let keys = "?: help  s: order  /: filter  Enter: detail  k: evict  q: end";
    Row::raw(order.unwrap_or_default() + &filter + keys)
}

fn table(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let (sheet, lines) = (app.sheet(), app.lines());
    if lines.is_empty() {
        let text = match (app.looks.before(), &*app.filter) {
            (None, _) if app.tab != TABS.len() - 1 => "the second look has the first figures",
            (_, "") => TABS[app.tab].none,
            _ => "no line has that text; Esc: all",
        };
        let text = Paragraph::new(text).wrap(Wrap { trim: true });
        return frame.render_widget(text, area);
    }
    let at = app.position(&lines);
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let top = (at + 1).saturating_sub(height);
    let seen = &lines[top..lines.len().min(top + height)];
    let columns = Columns::fit(sheet, seen, app.view().shift, area.width.into());
    let names = columns.0.iter().map(|(column, width)| {
        let (name, is_figure) = sheet.heads[*column];
        let style = match *column == app.view().order {
            true => BOLD.add_modifier(Modifier::UNDERLINED),
            false => BOLD,
        };
        Span::styled(padded(&name.to_uppercase(), *width, is_figure), style)
    });
    let mut rows = vec![Row::from_iter(names)];
    rows.extend(seen.iter().enumerate().map(|(row, line)| {
        let row = top + row;
        let style = match (row == at, app.fails.is_some()) {
            (true, _) => CHOSEN,
            (false, true) => DIM,
            (false, false) => Style::new(),
        };
        columns.row(sheet, line).style(style)
    }));
    frame.render_widget(Paragraph::new(rows), area);
}

/// The columns that a screen has room for, each with its width.
struct Columns(Vec<(usize, usize)>);

impl Columns {
    fn fit(sheet: &Sheet, lines: &[&Line], shift: usize, room: usize) -> Columns {
        let width = |column: usize| {
            let (name, is_figure) = sheet.heads[column];
            let cells = lines
                .iter()
                .map(|line| shown(&line.cells[column]).chars().count());
            let least = if is_figure { FIGURE_MIN } else { 0 };
            cells.chain([name.len(), least]).max().unwrap_or(0)
        };
        let all: Vec<usize> = (0..sheet.heads.len()).map(width).collect();
        let is_last = |column: usize| column + 1 == all.len();
        let rest = all.iter().enumerate().skip(1 + shift);
        let rest: Vec<(usize, usize)> = rest
            .map(|(column, width)| match is_last(column) {
                true => (column, *width),
                false => (column, (*width).min(TEXT_MAX)),
            })
            .collect();
        let wanted: usize = rest.iter().map(|(_, width)| width + GAP).sum();
        let left = room.saturating_sub(wanted);
        let first = all[0].min(left.max(NAME_MIN).max(room / 4)).min(room);
        let (mut columns, mut used) = (vec![(0, first)], first);
        for (column, width) in rest {
            let there = room.saturating_sub(used + GAP);
            let cut = width.min(there);
            // Of words a part is worth something, of figures none.
            let (_, is_figure) = sheet.heads[column];
            if cut < width && (is_figure || cut < NAME_MIN) {
                break;
            }
            columns.push((column, cut));
            used += GAP + cut;
        }
        Columns(columns)
    }

    fn row(&self, sheet: &Sheet, line: &Line) -> Row<'static> {
        let cells = self.0.iter().flat_map(|(column, width)| {
            let (name, is_figure) = sheet.heads[*column];
            let text = padded(&shown(&line.cells[*column]), *width, is_figure);
            match name {
                WAIT => bar(&text),
                _ => vec![Span::raw(text)],
            }
        });
        Row::from_iter(cells)
    }
}

/// A cell as it stands there.
fn shown(cell: &Cell) -> String {
    plain(&cell.to_string())
}

/// In a column, with the gap behind it. A name that is too long loses its middle: names of
/// hosts begin alike, or end so. Other texts lose their end.
fn padded(text: &str, width: usize, is_figure: bool) -> String {
    let count = text.chars().count();
    let text = match count <= width {
        true => text.to_owned(),
        false => {
            let kept = width.saturating_sub(1);
            let tail = match text.contains(' ') {
                true => 0,
                false => kept - kept / 2,
            };
            let head = text.chars().take(kept - tail);
            let tail = text.chars().skip(count - tail);
            head.chain((width > 0).then_some('\u{2026}'))
                .chain(tail)
                .collect()
        }
    };
    match is_figure {
        true => format!("{text:>width$} "),
        false => format!("{text:<width$} "),
    }
}

/// A bar with a colour for each letter, where the terminal has colours.
fn bar(text: &str) -> Vec<Span<'static>> {
    let styled = |letter: char| {
        let colour = match letter {
            'r' => Color::Cyan,
            'q' => Color::Yellow,
            'b' => Color::Magenta,
            's' => Color::Green,
            _ => Color::Reset,
        };
        Span::styled(letter.to_string(), Style::new().fg(colour))
    };
    text.chars().map(styled).collect()
}

fn detail(frame: &mut Frame<'_>, area: Rect, app: &App, line: &Line) {
    let history = app.history(line);
    let charts: [(&str, Writes); 3] = [
        ("I/O/s", Cell::Count),
        ("bytes/s", Cell::Bytes),
        ("p99", Cell::Taken),
    ];
    // A row for its name and one for its bars, or two.
    let (shown_charts, bars) = match area.height {
        0..12 => (1, 1),
        _ => (charts.len(), 2),
    };
    let has_history = !history.is_empty();
    let charted = if has_history {
        shown_charts as u16 * (bars + 1)
    } else {
        0
    };
    let rows = [Constraint::Length(charted), Constraint::Min(0)];
    let [top, facts] = Layout::vertical(rows).areas(area);
    if has_history {
        let each = Layout::vertical(
            [bars + 1]
                .repeat(shown_charts)
                .into_iter()
                .map(Constraint::Length),
        )
        .split(top);
        for (at, area) in each.iter().enumerate() {
            let (name, cell) = charts[at];
            let values: Vec<u64> = history.iter().map(|load| load[at]).collect();
            chart(frame, *area, name, cell, &values);
        }
    }
    let width = app.sheet().heads.iter().map(|(name, _)| name.len()).max();
    let width = width.unwrap_or(0);
    let cells = app.sheet().heads.iter().zip(&line.cells);
    let mut text: Vec<Row> = cells
        .map(|((name, _), cell)| {
            let name = Span::styled(format!("{name:<width$}  "), BOLD);
            Row::from_iter([name, Span::raw(shown(cell))])
        })
        .collect();
    text.extend(sizes_rows(line));
    text.extend(stages_rows(line));
    let last = text.len().saturating_sub(1) as u16;
    let text = Paragraph::new(text).wrap(Wrap { trim: false });
    frame.render_widget(text.scroll((app.scrolled.min(last), 0)), facts);
}

/// How large I/Os are; no row where there are none.
fn sizes_rows(line: &Line) -> Vec<Row<'static>> {
    let sizes = line.sizes.iter().map(|size| {
        let bound = size.bytes_max.map(|bytes| Cell::Bytes(bytes).to_string());
        [
            bound.unwrap_or_else(|| "more".to_owned()),
            Cell::Count(size.reads_per_s.round() as u64).to_string(),
            Cell::Count(size.writes_per_s.round() as u64).to_string(),
        ]
    });
    small_table(["size up to", "r/s", "w/s"], sizes.collect())
}

/// How long commands are in which stage; no row where none was timed.
fn stages_rows(line: &Line) -> Vec<Row<'static>> {
    let taken = |ns: Option<u64>| ns.map_or(Cell::Nothing, Cell::Taken).to_string();
    let stages = line.stages.iter().map(|stage| {
        let count = Cell::Count(stage.count).to_string();
        let (mean, p99) = (taken(stage.mean_ns), taken(stage.p99_ns));
        [plain(&stage.stage), count, mean, p99]
    });
    small_table(["stage", "timed", "mean", "p99"], stages.collect())
}

/// Rows below a free one and their heads: names at the left, figures at the right.
fn small_table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> Vec<Row<'static>> {
    let written = |cells: [&str; N]| {
        let cells = cells.into_iter().enumerate();
        let cells = cells.map(|(at, cell)| match at {
            0 => format!("{cell:<12}"),
            _ => format!("{cell:>10}"),
        });
        cells.collect::<String>()
    };
    if rows.is_empty() {
        return Vec::new();
    }
    let mut all = vec![Row::default(), Row::styled(written(heads), BOLD)];
    let rows = rows
        .iter()
        .map(|row| Row::raw(written(row.each_ref().map(String::as_str))));
    all.extend(rows);
    all
}

/// How a figure is written.
type Writes = fn(u64) -> Cell;

/// The last looks, the latest at the right.
fn chart(frame: &mut Frame<'_>, area: Rect, name: &str, cell: Writes, values: &[u64]) {
    let [title, bars] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let most = values.iter().copied().max().unwrap_or(0);
    let now = values.last().copied().unwrap_or(0);
    let text = format!(
        "{name}: {} now, {} at most of {HISTORY} looks",
        cell(now),
        cell(most)
    );
    frame.render_widget(Row::styled(text, BOLD), title);
    let room = usize::from(bars.width).min(HISTORY);
    let seen = &values[values.len().saturating_sub(room)..];
    frame.render_widget(Sparkline::default().data(seen).max(most.max(1)), bars);
}
