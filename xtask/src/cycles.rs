//! Import cycles among the modules of a crate, found in the syntax tree.
//!
//! Modules that are declared side by side are compared; what lies below one counts as
//! that one. A module and those that it declares are no cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, UseTree};

use crate::scan::root;

/// Modules that a cycle may have.
const CYCLE_MODULES_MAX: usize = 4;

/// Names from the crate's root, as `["change", "iscsi"]`.
type ModuleName = Vec<String>;

/// The modules of one crate: what each names, and what each passes on of others.
#[derive(Default)]
struct Modules {
    /// Paths from the crate's root.
    named: BTreeMap<ModuleName, BTreeSet<ModuleName>>,
    /// By the name under which a module has something of another: whose it is.
    passed_on: BTreeMap<ModuleName, ModuleName>,
}

impl Modules {
    /// The modules below the file of a crate's root.
    fn of(root_file: &Path) -> Modules {
        let mut modules = Modules::default();
        let folder = root_file.parent().expect("a file is in a folder");
        modules.add_file(Vec::new(), root_file, folder);
        modules
    }

    fn add_file(&mut self, name: ModuleName, path: &Path, folder: &Path) {
        let text = std::fs::read_to_string(path).expect("a module's file");
        let File { items, .. } = syn::parse_file(&text).expect("it compiles");
        self.add_items(name, &items, folder);
    }

    fn add_items(&mut self, name: ModuleName, items: &[Item], folder: &Path) {
        self.named.entry(name.clone()).or_default();
        let mut paths = Paths::default();
        for item in items.iter().filter(|item| !is_test(item)) {
            match item {
                Item::Mod(inner) => {
                    let word = inner.ident.to_string();
                    let below = [&name[..], std::slice::from_ref(&word)].concat();
                    let inner_folder = folder.join(&word);
                    match &inner.content {
                        Some((_, items)) => self.add_items(below, items, &inner_folder),
                        None => self.add_file(below, &file_of(folder, &word), &inner_folder),
                    }
                }
                Item::Use(used) => {
                    let mut leaves = Vec::new();
                    leaves_of(&used.tree, &mut Vec::new(), &mut leaves);
                    for (path, alias) in leaves {
                        if let Some(alias) = alias {
                            let mut own = name.clone();
                            own.push(alias);
                            self.passed_on.insert(own, absolute(&name, &path));
                        }
                        paths.found.push(path);
                    }
                }
                item => paths.visit_item(item),
            }
        }
        let found = paths.found.iter().map(|path| absolute(&name, path));
        self.named.insert(name.clone(), found.collect());
    }

    /// The module that a path from the crate's root leads to.
    fn module_of(&self, path: &[String], steps: usize) -> Option<&ModuleName> {
        let len = (0..=path.len()).rev();
        let longest = len
            .map(|len| &path[..len])
            .find(|part| self.named.contains_key(*part))?;
        let next = path.get(..=longest.len());
        if let Some(other) = next.and_then(|next| self.passed_on.get(next))
            && steps > 0
            && (other.len() > longest.len() || !longest.starts_with(other))
        {
            let whole = [&other[..], &path[longest.len() + 1..]].concat();
            if let Some(found) = self.module_of(&whole, steps - 1).filter(|m| !m.is_empty()) {
                return Some(found);
            }
        }
        self.named.get_key_value(longest).map(|(name, _)| name)
    }

    /// What names what, among the modules that one declares: by that one.
    fn graphs(&self) -> BTreeMap<ModuleName, Graph> {
        let mut graphs: BTreeMap<ModuleName, Graph> = BTreeMap::new();
        for (from, paths) in &self.named {
            for path in paths {
                let Some(to) = self.module_of(path, 8) else {
                    continue;
                };
                let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(same), to.get(same)) {
                    let graph = graphs.entry(from[..same].to_vec()).or_default();
                    graph.entry(a.clone()).or_default().insert(b.clone());
                    graph.entry(b.clone()).or_default();
                }
            }
        }
        graphs
    }
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The modules that each module leads to, over others too.
fn reached(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![from.to_owned()];
    while let Some(at) = left.pop() {
        for next in &graph[&at] {
            if found.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    found
}

/// Sets of modules of which each leads to all others.
fn cycles(graph: &Graph) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<String>> = graph
        .keys()
        .map(|from| (from, reached(graph, from)))
        .collect();
    let cycle = |of: &String| {
        let both = reached[of]
            .iter()
            .filter(|other| reached[*other].contains(of));
        both.cloned().collect::<BTreeSet<String>>()
    };
    let all = graph.keys().map(cycle);
    all.filter(|cycle| !cycle.is_empty()).collect()
}

fn file_of(folder: &Path, module: &str) -> PathBuf {
    let file = folder.join(format!("{module}.rs"));
    match file.exists() {
        true => file,
        false => folder.join(module).join("mod.rs"),
    }
}

fn is_test(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(|attribute| {
        let is = |name| attribute.path().is_ident(name);
        let list = attribute.meta.require_list();
        is("test") || is("cfg") && list.is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

/// The paths of a `use`, and the names that they have from then on.
fn leaves_of(tree: &UseTree, before: &mut ModuleName, to: &mut Vec<(ModuleName, Option<String>)>) {
    let len = before.len();
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves_of(&path.tree, before, to);
        }
        UseTree::Name(name) if name.ident == "self" => {
            to.push((before.clone(), before.last().cloned()));
        }
        UseTree::Name(name) => {
            before.push(name.ident.to_string());
            to.push((before.clone(), before.last().cloned()));
        }
        UseTree::Rename(name) => {
            if name.ident != "self" {
                before.push(name.ident.to_string());
            }
            to.push((before.clone(), Some(name.rename.to_string())));
        }
        UseTree::Glob(_) => to.push((before.clone(), None)),
        UseTree::Group(group) => {
            for tree in &group.items {
                leaves_of(tree, before, to);
            }
        }
    }
    before.truncate(len);
}

/// A path as it stands in a module, from the crate's root; one of another crate leads to
/// no module.
fn absolute(module: &ModuleName, path: &[String]) -> ModuleName {
    let ups = path.iter().take_while(|word| *word == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        Some("self") => [&module[..], &path[1..]].concat(),
        Some("super") => [&module[..module.len() - ups], &path[ups..]].concat(),
        _ => [&module[..], path].concat(),
    }
}

/// Every path in what is visited.
#[derive(Default)]
struct Paths {
    found: Vec<ModuleName>,
}

impl Paths {
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                other => {
                    self.found.push(std::mem::take(&mut path));
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.found.push(path);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let words = path.segments.iter().map(|word| word.ident.to_string());
            self.found.push(words.collect());
        }
        visit::visit_path(self, path);
    }

    /// What a macro makes of it nothing here knows; what it is given may have paths.
    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        self.tokens(invoked.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn crates() -> Vec<(String, PathBuf)> {
    let folder = root().join("crates");
    let entries = std::fs::read_dir(folder).expect("crates/").flatten();
    let crates = entries.map(|entry| {
        let source = entry.path().join("src");
        let files = ["lib.rs", "main.rs"].map(|name| source.join(name));
        let root = files.into_iter().find(|file| file.exists());
        let name = entry.file_name().into_string().expect("UTF-8");
        (name, root.expect("a library or a program"))
    });
    let mut crates: Vec<_> = crates.collect();
    crates.sort();
    crates
}

#[test]
fn no_import_cycle_is_larger_than_it_may_be() {
    let mut larger = Vec::new();
    for (name, file) in crates() {
        for (within, graph) in Modules::of(&file).graphs() {
            let cycles = cycles(&graph).into_iter();
            let found = cycles.filter(|cycle| cycle.len() > CYCLE_MODULES_MAX);
            larger.extend(found.map(|cycle| format!("{name} {}: {cycle:?}", within.join("::"))));
        }
    }
    assert!(larger.is_empty(), "{larger:#?}");
}

#[test]
fn cycle_is_found_over_names_that_are_passed_on_and_not_in_tests() {
    let module = |text: &str| syn::parse_file(text).expect("it is Rust").items;
    let mut modules = Modules::default();
    let text = "mod a { use super::B; mod below { use crate::b::c; } }
        mod b { fn f() { crate::c::g() } }
        mod c { macro_rules! m { () => {}; } fn g() { h!(crate::a::X) } }
        mod d { use crate::a; #[cfg(test)] mod tests { use crate::e::E; } }
        mod e { use super::d::*; }
        use b::B;";
    modules.add_items(Vec::new(), &module(text), Path::new(""));
    let graphs = modules.graphs();
    let names = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
    let expected: BTreeSet<BTreeSet<String>> = [names(&["a", "b", "c"])].into();
    assert_eq!(cycles(&graphs[&Vec::new()]), expected, "{graphs:?}");
}
