//! Import cycles between the files of a crate.
//!
//! A file imports another one if it names an item that the other one defines; re-exports are followed to the
//! definition. Two rules keep the count honest and useful: tests do not count, and neither do items that an enclosing
//! module defines, because a module and its parts are one unit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// The limits of the workspace: the number of cycles, and the number of files in each cycle.
const MOST_CYCLES: usize = 5;
const MOST_FILES: usize = 4;

/// A module, by its path from the root of its crate.
type Module = Vec<String>;

/// Checks all crates below a directory.
///
/// # Errors
/// If there are more or larger cycles than allowed, or a file cannot be parsed.
pub(crate) fn check(workspace: &Path) -> Result<()> {
    let mut found = Vec::new();
    for root in crates(workspace)? {
        let name = root.parent().and_then(Path::file_name).unwrap_or_default();
        for cycle in Crate::read(&root)?.cycles() {
            let files: Vec<String> = cycle.iter().map(|module| module.join("/")).collect();
            found.push((name.to_string_lossy().into_owned(), files));
        }
    }
    for (name, files) in &found {
        println!("import cycle: {name}: {}", files.join(" "));
    }
    let longest = found.iter().map(|(_, files)| files.len()).max();
    if found.len() > MOST_CYCLES || longest.is_some_and(|files| files > MOST_FILES) {
        bail!(
            "{} import cycles between files, the longest of {} files: at most {MOST_CYCLES} are allowed, of \
             {MOST_FILES} files each. Move what the files share into a file that imports none of them",
            found.len(),
            longest.unwrap_or(0)
        );
    }
    println!("{} import cycles between files", found.len());
    Ok(())
}

/// Returns the source directories of all crates below a directory.
fn crates(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let source = directory.join("src");
    if directory.join("Cargo.toml").is_file() && source.is_dir() {
        found.push(source);
    }
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let skipped = ["target", "src", "tests", "examples"];
        let hidden = name.to_string_lossy().starts_with('.');
        if path.is_dir() && !hidden && !skipped.iter().any(|skipped| name == *skipped) {
            found.extend(crates(&path)?);
        }
    }
    Ok(found)
}

/// The names that a file defines or uses.
#[derive(Debug, Default)]
struct Names {
    defined: BTreeSet<String>,
    /// Imported names and their paths; `*` for all names of a module.
    imported: Vec<(String, Vec<String>)>,
    /// Paths in the code.
    used: Vec<Vec<String>>,
}

/// The modules of a crate that have a file of their own.
#[derive(Debug, Default)]
struct Crate(BTreeMap<Module, Names>);

impl Crate {
    fn read(source: &Path) -> Result<Self> {
        let mut all = Self::default();
        for root in ["lib.rs", "main.rs"] {
            let file = source.join(root);
            if file.is_file() {
                all.add(&file, source, Vec::new())?;
            }
        }
        Ok(all)
    }

    /// Reads a file and those of its submodules, which are in a directory.
    fn add(&mut self, file: &Path, directory: &Path, module: Module) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        let names = self.0.entry(module.clone()).or_default();
        let mut submodules = Vec::new();
        for item in &parsed.items {
            if is_test(attributes(item)) {
                continue;
            }
            if let Item::Mod(item) = item {
                names.defined.insert(item.ident.to_string());
                if item.content.is_none() {
                    submodules.push(item.ident.to_string());
                    continue;
                }
            }
            names.visit_item(item);
        }
        for name in submodules {
            let flat = directory.join(format!("{name}.rs"));
            let nested = directory.join(&name);
            let file = match flat.is_file() {
                true => flat,
                false => nested.join("mod.rs"),
            };
            if file.is_file() {
                let module = [&module[..], &[name]].concat();
                self.add(&file, &nested, module)?;
            }
        }
        Ok(())
    }

    /// Returns the groups of files that import each other, directly or indirectly.
    fn cycles(&self) -> Vec<Vec<Module>> {
        let imports: BTreeMap<&Module, BTreeSet<&Module>> = self
            .0
            .keys()
            .map(|module| (module, self.imports(module)))
            .collect();
        let reach = |from: &Module| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(module) = next.pop() {
                let new = imports[module].iter().filter(|it| seen.insert(**it));
                next.extend(new.copied().collect::<Vec<_>>());
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<&Module>> = self
            .0
            .keys()
            .map(|module| (module, reach(module)))
            .collect();
        let mut cycles = BTreeSet::new();
        for (module, seen) in &reached {
            if seen.contains(module) {
                let back = seen
                    .iter()
                    .filter(|other| reached[**other].contains(*module));
                cycles.insert(back.map(|it| (*it).clone()).collect::<Vec<Module>>());
            }
        }
        cycles.into_iter().collect()
    }

    /// Returns the files that a file imports.
    fn imports(&self, module: &Module) -> BTreeSet<&Module> {
        let names = &self.0[module];
        let imported = names.imported.iter().map(|(_, path)| path);
        let paths = imported.chain(&names.used);
        let found = paths.filter_map(|path| {
            let mut path = self.absolute(module, path)?;
            path.pop_if(|last| last == "*");
            self.definer(&path, &mut BTreeSet::new())
        });
        // An enclosing module and its parts are one unit.
        found.filter(|it| !module.starts_with(it)).collect()
    }

    /// Returns the path from the root of the crate, or `None` if it begins in another crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut base = module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|it| it == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [&module[..], &[first.to_owned()]].concat();
                self.0.get(&child)?;
            }
        }
        Some([&base[..], rest].concat())
    }

    /// Returns the file that defines the item of this path.
    fn definer(&self, path: &Module, seen: &mut BTreeSet<Module>) -> Option<&Module> {
        if !seen.insert(path.clone()) {
            return None;
        }
        let depth = (0..=path.len())
            .rev()
            .find(|&n| self.0.contains_key(&path[..n]))?;
        let (module, names) = self.0.get_key_value(&path[..depth])?;
        let Some(name) = path.get(depth) else {
            return Some(module);
        };
        if names.defined.contains(name) {
            return Some(module);
        }
        let imported = names.imported.iter();
        let through = imported.filter(|(alias, _)| alias == name || alias == "*");
        let found = through.filter_map(|(alias, path)| {
            let mut path = self.absolute(module, path)?;
            if alias == "*" {
                path.pop();
                path.push(name.clone());
                let target = self.definer(&path, seen)?;
                return self.0[target].defined.contains(name).then_some(target);
            }
            self.definer(&path, seen)
        });
        Some(found.last().unwrap_or(module))
    }
}

impl Names {
    fn import(&mut self, tree: &UseTree, path: &mut Vec<String>) {
        match tree {
            UseTree::Path(it) => {
                path.push(it.ident.to_string());
                self.import(&it.tree, path);
                path.pop();
            }
            UseTree::Name(it) if it.ident == "self" => {
                let name = path.last().cloned().unwrap_or_default();
                self.imported.push((name, path.clone()));
            }
            UseTree::Name(it) => self.imported_as(it.ident.to_string(), it.ident.to_string(), path),
            UseTree::Rename(it) => {
                self.imported_as(it.rename.to_string(), it.ident.to_string(), path)
            }
            UseTree::Glob(_) => self.imported_as("*".to_owned(), "*".to_owned(), path),
            UseTree::Group(it) => it.items.iter().for_each(|tree| self.import(tree, path)),
        }
    }

    fn imported_as(&mut self, alias: String, name: String, path: &[String]) {
        self.imported.push((alias, [path, &[name]].concat()));
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            return;
        }
        let name = match item {
            Item::Const(it) => Some(&it.ident),
            Item::Enum(it) => Some(&it.ident),
            Item::Fn(it) => Some(&it.sig.ident),
            Item::Macro(it) => it.ident.as_ref(),
            Item::Static(it) => Some(&it.ident),
            Item::Struct(it) => Some(&it.ident),
            Item::Trait(it) => Some(&it.ident),
            Item::Type(it) => Some(&it.ident),
            Item::Union(it) => Some(&it.ident),
            _ => None,
        };
        self.defined.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        if path.segments.len() > 1 {
            self.used
                .push(segments.map(|it| it.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

/// Returns whether an item exists in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        let test = it.path().is_ident("cfg")
            && it
                .parse_args::<syn::Path>()
                .is_ok_and(|what| what.is_ident("test"));
        test || it.path().is_ident("test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cycles of a crate with these files.
    fn cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = directory.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let found = Crate::read(directory.path()).unwrap().cycles();
        let names = |cycle: &Vec<Module>| cycle.iter().map(|it| it.join("/")).collect();
        found.iter().map(names).collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_cycle() {
        let found = cycles(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;"),
            ("a.rs", "use crate::b::B;\npub struct A(B);"),
            ("b.rs", "pub struct B;\nfn f() { crate::c::f() }"),
            ("c.rs", "use super::a::A;\npub fn f() { let _: A; }"),
        ]);
        assert_eq!(found, [["a", "b", "c"]]);
    }

    #[test]
    fn a_re_export_is_followed_to_the_definition() {
        let found = cycles(&[
            ("lib.rs", "mod a;\nmod b;\npub use b::B;"),
            ("a.rs", "use crate::B;\npub struct A(B);"),
            ("b.rs", "use crate::a::A;\npub struct B;\nfn f(_: A) {}"),
        ]);
        assert_eq!(found, [["a", "b"]]);
    }

    #[test]
    fn parts_may_name_their_module_and_tests_may_name_all() {
        let found = cycles(&[
            ("lib.rs", "mod a;\nmod b;\npub const LIMIT: u32 = 1;"),
            (
                "a/mod.rs",
                "mod part;\nuse part::Part;\npub struct A(Part);",
            ),
            (
                "a/part.rs",
                "use super::A;\npub struct Part;\nfn f(_: A) { crate::LIMIT; }",
            ),
            (
                "b.rs",
                "use crate::a::A;\npub struct B(A);\n#[cfg(test)]\nmod tests { use super::*; }",
            ),
        ]);
        assert_eq!(found, Vec::<Vec<String>>::new());
    }
}
