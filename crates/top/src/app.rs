//! What is shown, and what keys do to it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::look::{Evicts, Look, Looks};
use crate::rows::Between;
use crate::sheet::{Line, Sheet, TABS, sheets};

/// Looks that a sparkline shows.
pub(crate) const HISTORY: usize = 60;
/// Lines that a page has, for keys.
const PAGE: usize = 10;

/// What keys go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The table.
    Table,
    /// The text that lines are filtered by.
    Filter,
    /// One line, with what it did lately.
    Detail,
    /// Whether this is to be ended.
    Confirm(Evicts),
    /// What keys do.
    Help,
}

/// What a key asks for beyond what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Nothing,
    Quit,
    Evict(Evicts),
}

/// How a tab is shown.
#[derive(Clone, Debug)]
pub(crate) struct TabView {
    /// The column that it is ordered by.
    pub order: usize,
    /// The least at the top.
    pub ascends: bool,
    /// The line that is chosen.
    pub chosen: Option<String>,
    /// Columns that are left out behind the first.
    pub shift: usize,
}

/// All that is shown.
pub(crate) struct App {
    pub looks: Looks,
    pub sheets: [Sheet; TABS.len()],
    pub tab: usize,
    pub views: [TabView; TABS.len()],
    pub filter: String,
    pub mode: Mode,
    /// Rows of the detail that are above the screen.
    pub scrolled: u16,
    /// What has happened to what was asked for.
    pub message: Option<String>,
    /// Why the last look has failed.
    pub fails: Option<String>,
    history: BTreeMap<(usize, String), VecDeque<[u64; 3]>>,
}

impl Default for App {
    fn default() -> App {
        let looks = Looks::default();
        let sheets = sheets(&looks);
        App {
            looks,
            sheets,
            tab: 0,
            views: TABS.each_ref().map(|_| TabView {
                order: usize::MAX,
                ascends: false,
                chosen: None,
                shift: 0,
            }),
            filter: String::new(),
            mode: Mode::Table,
            scrolled: 0,
            message: None,
            fails: None,
            history: BTreeMap::new(),
        }
    }
}

impl App {
    /// Shows one more look, or says why there is none.
    pub fn show(&mut self, look: Result<Look, String>) {
        match look {
            Ok(look) => {
                self.fails = None;
                if self.looks.add(look) {
                    self.message = Some("weft has started anew: counts begin at 0".to_owned());
                    self.history.clear();
                }
                self.sheets = sheets(&self.looks);
                for (view, (sheet, tab)) in self.views.iter_mut().zip(self.sheets.iter().zip(&TABS))
                {
                    if view.order >= sheet.heads.len() {
                        let mut heads = sheet.heads.iter();
                        let order = heads.position(|(name, _)| *name == tab.order);
                        view.order = order.unwrap_or(usize::MAX);
                    }
                }
                if Between::of(&self.looks).is_some() {
                    self.note_history();
                }
            }
            Err(why) => self.fails = Some(why),
        }
    }

    fn note_history(&mut self) {
        let mut there = BTreeSet::new();
        for (tab, sheet) in self.sheets.iter().enumerate() {
            for line in sheet.lines.iter().filter(|_| TABS[tab].order != "event") {
                let key = (tab, line.key.clone());
                let history = self.history.entry(key.clone()).or_default();
                history.push_back(line.load);
                if history.len() > HISTORY {
                    history.pop_front();
                }
                there.insert(key);
            }
        }
        self.history.retain(|key, _| there.contains(key));
    }

    /// What a line of this tab did lately, the latest at the end.
    pub fn history(&self, line: &Line) -> Vec<[u64; 3]> {
        let history = self.history.get(&(self.tab, line.key.clone()));
        history
            .map(|all| all.iter().copied().collect())
            .unwrap_or_default()
    }

    pub fn sheet(&self) -> &Sheet {
        &self.sheets[self.tab]
    }

    pub fn view(&self) -> &TabView {
        &self.views[self.tab]
    }

    /// The lines that the filter lets through, in their order.
    pub fn lines(&self) -> Vec<&Line> {
        let wanted = self.filter.to_lowercase();
        let has = |line: &&Line| {
            let mut cells = line.cells.iter();
            wanted.is_empty() || cells.any(|cell| cell.to_string().to_lowercase().contains(&wanted))
        };
        let mut lines: Vec<&Line> = self.sheet().lines.iter().filter(has).collect();
        let TabView { order, ascends, .. } = *self.view();
        lines.sort_by(|a, b| {
            let of = |line: &Line| line.cells.get(order).cloned();
            let by = match (of(a), of(b)) {
                (Some(a), Some(b)) => a.order(&b),
                _ => Ordering::Equal,
            };
            if ascends { by } else { by.reverse() }
        });
        lines
    }

    /// Where the chosen line is among them.
    pub fn position(&self, lines: &[&Line]) -> usize {
        let chosen = self.view().chosen.as_deref();
        let mut lines = lines.iter();
        let found = lines.position(|line| Some(&*line.key) == chosen);
        found.unwrap_or(0)
    }

    /// The chosen line.
    pub fn chosen(&self) -> Option<&Line> {
        let lines = self.lines();
        lines.get(self.position(&lines)).copied()
    }

    fn choose(&mut self, by: isize) {
        let lines = self.lines();
        let last = lines.len().saturating_sub(1);
        let at = self.position(&lines).saturating_add_signed(by).min(last);
        let key = lines.get(at).map(|line| line.key.clone());
        self.views[self.tab].chosen = key;
    }

    /// Does what a key asks for.
    pub fn on_key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Wish::Quit;
        }
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => self.on_table_key(key.code),
            Mode::Filter => self.on_filter_key(key.code),
            Mode::Detail => self.on_detail_key(key.code),
            Mode::Confirm(what) if key.code == KeyCode::Char('y') => Wish::Evict(what),
            // Any other key goes back.
            Mode::Confirm(_) | Mode::Help => Wish::Nothing,
        }
    }

    fn on_table_key(&mut self, code: KeyCode) -> Wish {
        self.message = None;
        let columns = self.sheet().heads.len().max(1);
        let tabs = TABS.len();
        let view = &mut self.views[self.tab];
        match code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Char(digit @ '1'..='6') => self.tab = digit as usize - '1' as usize,
            KeyCode::Tab => self.tab = (self.tab + 1) % tabs,
            KeyCode::BackTab => self.tab = (self.tab + tabs - 1) % tabs,
            KeyCode::Up => self.choose(-1),
            KeyCode::Down => self.choose(1),
            KeyCode::PageUp => self.choose(-(PAGE as isize)),
            KeyCode::PageDown => self.choose(PAGE as isize),
            KeyCode::Home => self.choose(isize::MIN),
            KeyCode::End => self.choose(isize::MAX),
            KeyCode::Left => view.shift = view.shift.saturating_sub(1),
            KeyCode::Right => view.shift = (view.shift + 1).min(columns.saturating_sub(2)),
            KeyCode::Char('s') => view.order = view.order.wrapping_add(1) % columns,
            KeyCode::Char('r') => view.ascends = !view.ascends,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Enter if self.chosen().is_some() => {
                // It stays the chosen one, wherever its order takes it.
                self.choose(0);
                (self.mode, self.scrolled) = (Mode::Detail, 0);
            }
            KeyCode::Char('k') => self.ask_to_evict(),
            _ => {}
        }
        Wish::Nothing
    }

    fn ask_to_evict(&mut self) {
        match self.chosen().and_then(|line| line.evicts.clone()) {
            Some(what) => self.mode = Mode::Confirm(what),
            None => {
                let why = "k ends hosts, connections and NFS clients: choose one of them";
                self.message = Some(why.to_owned());
            }
        }
    }

    fn on_filter_key(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Enter => return Wish::Nothing,
            KeyCode::Esc => {
                self.filter.clear();
                return Wish::Nothing;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        self.mode = Mode::Filter;
        Wish::Nothing
    }

    fn on_detail_key(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter => return Wish::Nothing,
            KeyCode::Char('k') => {
                self.ask_to_evict();
                return Wish::Nothing;
            }
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down => self.scrolled = self.scrolled.saturating_add(1),
            _ => {}
        }
        self.mode = Mode::Detail;
        Wish::Nothing
    }
}
