//! No file imports a file that imports it, straight or over others.
//!
//! Imports are read from `use` declarations and from paths in code. What a module only passes on (`pub use`) counts as the file that
//! defines it. Test modules are left out, and so are the arguments of macros.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ckpt_tests::product;
use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use petgraph::visit::EdgeRef;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// The path of a module or of something in it, from the crate's root.
type Names = Vec<String>;

/// The files of a crate by their modules, and what they name.
struct Crate {
    files: BTreeMap<Names, Contents>,
}

/// What a file names.
#[derive(Default)]
struct Contents {
    /// Paths as they are written: from `use` declarations, and from code.
    paths: Vec<Names>,
    /// What `use` declarations make known here, by the name that it has here.
    known: BTreeMap<String, Names>,
    /// How many modules within the file the reader is in.
    depth: usize,
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_it = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    };
    attributes.iter().any(is_it)
}

impl<'ast> Visit<'ast> for Contents {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_of_tests = match item {
            Item::Mod(ItemMod { attrs, .. }) | Item::Use(ItemUse { attrs, .. }) => is_test(attrs),
            Item::Fn(function) => is_test(&function.attrs),
            _ => false,
        };
        if !is_of_tests {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, module);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add(&mut Vec::new(), &item.tree);
    }

    /// The path of a macro leads to the crate's root, wherever the macro is.
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            let path = self.at_file(names);
            self.paths.push(path);
        }
        visit::visit_path(self, path);
    }
}

impl Contents {
    fn of(path: &Path) -> Contents {
        let text = fs::read_to_string(path).expect("a file of the repository");
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut contents = Contents::default();
        contents.visit_file(&file);
        contents
    }

    /// A path as it would be outside of the modules within the file.
    fn at_file(&self, mut path: Names) -> Names {
        let above = path.iter().take(self.depth).take_while(|name| *name == "super").count();
        if above > 0 {
            path.splice(..above, ["self".to_owned()]);
            if path.get(1).is_some_and(|name| name == "super") {
                path.remove(0);
            }
        }
        path
    }

    fn add(&mut self, before: &mut Names, tree: &UseTree) {
        let (name, alias) = match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add(before, &path.tree);
                before.pop();
                return;
            }
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.add(before, tree)),
            UseTree::Glob(_) => {
                let path = self.at_file(before.clone());
                return self.paths.push(path);
            }
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(rename) => (rename.ident.to_string(), rename.rename.to_string()),
        };
        let mut path = before.clone();
        // A module itself has the name before.
        let alias = if name == "self" { before.last().cloned().unwrap_or(alias) } else { alias };
        if name != "self" {
            path.push(name);
        }
        let path = self.at_file(path);
        self.known.insert(alias, path.clone());
        self.paths.push(path);
    }
}

impl Crate {
    fn at(root: &Path) -> Crate {
        let mut files = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder of the repository") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    files.insert(module(root, &path), Contents::of(&path));
                }
            }
        }
        Crate { files }
    }

    /// A path from the crate's root, if it is one of this crate; `here` is the module that it is written in.
    fn rooted(&self, here: &[String], path: &[String]) -> Option<Names> {
        let (mut base, mut rest) = (here.to_vec(), path);
        match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [here, &[first.to_owned()]].concat();
                if !self.files.contains_key(&child) {
                    let known = self.files.get(here)?.known.get(first).filter(|known| known.as_slice() != path)?;
                    let known = self.rooted(here, known)?;
                    return Some([known.as_slice(), &path[1..]].concat());
                }
            }
        }
        Some([base.as_slice(), rest].concat())
    }

    /// The module whose file defines what `path` names.
    fn definer(&self, path: &[String], steps: usize) -> Option<Names> {
        let longest = (0..=path.len()).rev().find(|&length| self.files.contains_key(&path[..length]))?;
        let (module, rest) = path.split_at(longest);
        let passed_on = rest.first().and_then(|name| self.files[module].known.get(name));
        let elsewhere = passed_on.filter(|_| steps > 0).and_then(|passed_on| {
            let passed_on = self.rooted(module, passed_on)?;
            if passed_on == path { None } else { self.definer(&passed_on, steps - 1) }
        });
        elsewhere.or_else(|| Some(module.to_vec()))
    }

    /// The imports within each circle of files: what imports, and by which path.
    fn circles(&self) -> Vec<BTreeSet<(String, String)>> {
        const STEPS_MAX: usize = 8;
        let mut graph = DiGraph::new();
        let nodes: BTreeMap<&Names, _> = self.files.keys().map(|module| (module, graph.add_node(module))).collect();
        for (module, contents) in &self.files {
            for path in &contents.paths {
                let rooted = self.rooted(module, path);
                let definer = rooted.and_then(|rooted| self.definer(&rooted, STEPS_MAX));
                if let Some(definer) = definer.filter(|definer| definer != module) {
                    graph.update_edge(nodes[module], nodes[&definer], path.join("::"));
                }
            }
        }
        let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1);
        let imports_within = |circle: Vec<_>| {
            let within = graph
                .edge_references()
                .filter(|edge| [edge.source(), edge.target()].iter().all(|end| circle.contains(end)));
            within.map(|edge| (graph[edge.source()].join("::"), edge.weight().clone())).collect()
        };
        circles.map(imports_within).collect()
    }
}

fn module(root: &Path, file: &Path) -> Names {
    let below: PathBuf = file.strip_prefix(root).expect("it is there").with_extension("");
    let mut names: Names = below.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

/// How many files of each crate are in circles. Fewer is better: then the number here gets smaller.
const IN_CIRCLES: [(&str, usize); 5] =
    [("runtime/src", 14), ("runtime/wire/src", 2), ("runtime/store/src", 50), ("kernels/src", 18), ("preload/src", 30)];

#[test]
fn files_in_circles_become_no_more() {
    for (root, allowed) in IN_CIRCLES {
        let circles = Crate::at(&product::repository().join(root)).circles();
        let files: BTreeSet<&String> = circles.iter().flatten().map(|(file, _)| file).collect();
        assert_eq!(files.len(), allowed, "{root}: {circles:#?}");
    }
}

#[test]
fn a_circle_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("it is ours");
    write("lib.rs", "mod one; mod two; mod three; mod four; pub use three::Three;");
    write("one.rs", "use crate::two;\n");
    write("two.rs", "fn first() { super::one::first() }\n#[cfg(test)]\nmod tests { use crate::three; }\n");
    write("three.rs", "use crate::two;\npub struct Three;\n");
    write("four.rs", "use crate::Three;\n");
    let circles = Crate::at(folder.path()).circles();
    let expected = [("one", "crate::two"), ("two", "super::one::first")];
    assert_eq!(circles, [BTreeSet::from(expected.map(|(file, path)| (file.to_owned(), path.to_owned())))]);
}
