//! The dependency graph of a crate's top-level modules: it must have no cycle, so that a crate can be read, and
//! split, from the bottom up. Test code is exempt.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{Problem, TreeFile};

/// A module's path below its crate's root; empty for the root itself.
type ModulePath = Vec<String>;

/// Names of the crate's root that stand for a module: its own name, or what the root re-exports from it.
type Names = BTreeMap<String, String>;

/// One place where a file names another top-level module of its crate.
struct Mention<'a> {
    from: &'a str,
    to: String,
    file: &'a TreeFile,
    line: usize,
}

/// No top-level module depends on itself, directly or through others.
pub(super) fn top_level_modules_form_no_cycle(files: &[TreeFile]) -> Vec<Problem> {
    let roots = crate_roots(files);
    roots.iter().flat_map(|root| cycles(root, files)).collect()
}

/// Every folder that holds a crate's first file.
fn crate_roots(files: &[TreeFile]) -> BTreeSet<String> {
    let roots = files.iter().filter_map(|file| {
        let (folder, name) = file.path.rsplit_once('/')?;
        let is_source = folder.ends_with("/src") || folder.contains("/src/");
        (is_source && matches!(name, "lib.rs" | "main.rs")).then(|| format!("{folder}/"))
    });
    roots.collect()
}

fn cycles(root: &str, files: &[TreeFile]) -> Vec<Problem> {
    let mut sources = Vec::new();
    let (mut test_only, mut names) = (Vec::new(), Names::new());
    for file in files.iter().filter(|file| belongs_to(root, file, files)) {
        let path = module_path(&file.path[root.len()..]);
        let Ok(tokens) = TokenStream::from_str(&file.text) else {
            continue; // the compiler reports it better
        };
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        test_only.extend(test_only_modules(&tokens, &path));
        match path.first() {
            Some(top) => drop(names.insert(top.clone(), top.clone())),
            None => root_imports(&tokens, &mut names),
        }
        sources.push((path, tokens, file));
    }
    let mut mentions = Vec::new();
    for (path, tokens, file) in &sources {
        let Some(from) = path.first() else { continue };
        if test_only.iter().any(|module| path.starts_with(module)) {
            continue;
        }
        let mut found = Vec::new();
        walk(tokens, path, &mut found);
        for (name, line) in found {
            if let Some(to) = names.get(&name).filter(|to| *to != from) {
                let (from, to) = (from.as_str(), to.clone());
                mentions.push(Mention {
                    from,
                    to,
                    file,
                    line,
                });
            }
        }
    }
    report(&mentions)
}

/// Whether the file belongs to the crate at `root`, and not to a nested crate.
fn belongs_to(root: &str, file: &TreeFile, files: &[TreeFile]) -> bool {
    let Some(rest) = file.path.strip_prefix(root) else {
        return false;
    };
    let is_rust = std::path::Path::new(rest)
        .extension()
        .is_some_and(|extension| extension == "rs");
    let mut below = rest.match_indices('/').map(|(at, _)| &rest[..=at]);
    is_rust
        && !below.any(|folder| {
            let first = |name: &str| {
                files
                    .iter()
                    .any(|f| f.path == format!("{root}{folder}{name}"))
            };
            first("lib.rs") || first("main.rs")
        })
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`.
fn module_path(file: &str) -> ModulePath {
    let file = file.strip_suffix(".rs").unwrap_or(file);
    let mut path: ModulePath = file.split('/').map(str::to_owned).collect();
    let last = path.last().map_or("", String::as_str);
    if last == "mod" || (path.len() == 1 && matches!(last, "lib" | "main")) {
        path.pop();
    }
    path
}

/// What `use a::b::Name` of the root makes known as `crate::Name`.
fn root_imports(tokens: &[TokenTree], names: &mut Names) {
    for (at, token) in tokens.iter().enumerate() {
        if is_word(token, "use") {
            let statement = &tokens[at + 1..];
            let end = statement.iter().position(|token| is_sign(token, ';'));
            import(&statement[..end.unwrap_or(statement.len())], None, names);
        }
    }
}

/// Reads one `use` tree below `top`, the first module of its path.
fn import(tree: &[TokenTree], top: Option<&str>, names: &mut Names) {
    for branch in tree.split(|token| is_sign(token, ',')) {
        let mut top = top.map(str::to_owned);
        let mut last = None;
        for token in branch {
            match token {
                TokenTree::Ident(word)
                    if matches!(word.to_string().as_str(), "crate" | "self" | "as") => {}
                TokenTree::Ident(word) => {
                    top.get_or_insert_with(|| word.to_string());
                    last = Some(word.to_string());
                }
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    import(&inner, top.as_deref(), names);
                    last = None;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if let (Some(top), Some(last)) = (top, last) {
            names.entry(last).or_insert(top);
        }
    }
}

/// Modules in files of their own that are declared below `#[cfg(test)]` or the like.
fn test_only_modules(tokens: &[TokenTree], path: &ModulePath) -> Vec<ModulePath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !is_test_attribute(&tokens[at..]) {
            at += 1;
            continue;
        }
        let end = end_of_item(tokens, at + 2);
        let item = &tokens[at + 2..end];
        let module = item.iter().position(|token| is_word(token, "mod"));
        if let Some(TokenTree::Ident(name)) = module.and_then(|module| item.get(module + 1)) {
            found.push([path.as_slice(), &[name.to_string()]].concat());
        }
        at = end;
    }
    found
}

/// Collects every name of the crate's root that the tokens name, with its line.
fn walk(tokens: &[TokenTree], path: &[String], found: &mut Vec<(String, usize)>) {
    let mut at = 0;
    while at < tokens.len() {
        if is_test_attribute(&tokens[at..]) {
            at = end_of_item(tokens, at + 2);
            continue;
        }
        match &tokens[at] {
            TokenTree::Group(group) => {
                let inline = at
                    .checked_sub(2)
                    .and_then(|before| match &tokens[before..at] {
                        [module, TokenTree::Ident(name)] if is_word(module, "mod") => {
                            Some(name.to_string())
                        }
                        _ => None,
                    });
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let path: ModulePath = path.iter().cloned().chain(inline).collect();
                walk(&inner, &path, found);
                at += 1;
            }
            TokenTree::Ident(word) if word == "crate" || word == "super" => {
                let mut depth = if word == "crate" {
                    0
                } else {
                    path.len().saturating_sub(1)
                };
                at += 1;
                while after_colons(tokens, at).is_some_and(|token| is_word(token, "super")) {
                    depth = depth.saturating_sub(1);
                    at += 3;
                }
                if depth == 0
                    && let Some(token) = after_colons(tokens, at)
                {
                    first_names(token, found);
                }
            }
            _ => at += 1,
        }
    }
}

/// The first name of a path, or of each path in braces.
fn first_names(token: &TokenTree, found: &mut Vec<(String, usize)>) {
    match token {
        TokenTree::Ident(name) => found.push((name.to_string(), name.span().start().line)),
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            for branch in inner.split(|token| is_sign(token, ',')) {
                if let Some(first) = branch.first() {
                    first_names(first, found);
                }
            }
        }
        _ => {}
    }
}

fn after_colons(tokens: &[TokenTree], at: usize) -> Option<&TokenTree> {
    let colons = tokens.get(at..at + 2)?;
    colons
        .iter()
        .all(|token| is_sign(token, ':'))
        .then(|| tokens.get(at + 2))?
}

/// `#[cfg(test)]`, `#[cfg(any(test, …))]` or `#[test]`.
pub(super) fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [hash, TokenTree::Group(attribute), ..] = tokens else {
        return false;
    };
    let text = attribute.stream().to_string();
    let words: Vec<&str> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .collect();
    let is_of_tests = match words.as_slice() {
        ["test"] => true,
        ["cfg", condition @ ..] => condition.contains(&"test") && !condition.contains(&"not"),
        _ => false,
    };
    is_sign(hash, '#') && is_of_tests
}

/// Behind the item that begins at `at`: its `;` or its braces.
pub(super) fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| {
        is_sign(token, ';')
            || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    let Some(mut end) = tokens[at.min(tokens.len())..]
        .iter()
        .position(ends)
        .map(|end| at + end)
    else {
        return tokens.len();
    };
    // The braces of `use a::{b};` are not its end.
    if tokens.get(end + 1).is_some_and(|token| is_sign(token, ';')) {
        end += 1;
    }
    end + 1
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// One problem for every arrow between modules that reach each other.
fn report(mentions: &[Mention<'_>]) -> Vec<Problem> {
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for mention in mentions {
        arrows.entry(mention.from).or_default().insert(&mention.to);
    }
    let reaches = |from: &str| -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = arrows.get(from).into_iter().flatten().copied().collect();
        while let Some(module) = open.pop() {
            if seen.insert(module) {
                open.extend(arrows.get(module).into_iter().flatten());
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|&from| (from, reaches(from))).collect();
    let mut reported = BTreeSet::new();
    let in_cycle = mentions.iter().filter(|mention| {
        reach
            .get(mention.to.as_str())
            .is_some_and(|reached| reached.contains(mention.from))
    });
    in_cycle
        .filter(|mention| reported.insert((mention.from, &mention.to)))
        .map(|mention| {
            let Mention {
                from,
                to,
                file,
                line,
            } = mention;
            Problem::new(
                file,
                Some(*line),
                format!("`{from}` names `{to}`, which leads back to `{from}`"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let file = |&(path, text): &(&str, &str)| TreeFile {
            path: format!("crates/made/src/{path}"),
            text: text.to_owned(),
        };
        let files: Vec<TreeFile> = files.iter().map(file).collect();
        let found = top_level_modules_form_no_cycle(&files);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn code_that_tests_only_add_something_to_is_still_read() {
        for attribute in ["#[cfg_attr(test, derive(Debug))]", "#[cfg(not(test))]"] {
            let b = format!("{attribute}\nstruct B(crate::a::A);");
            let found = problems(&[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "use crate::b::B;"),
                ("b.rs", &b),
            ]);
            assert_eq!(found.len(), 2, "{attribute}: {found:#?}");
        }
    }

    #[test]
    fn modules_that_name_each_other_are_reported_with_the_line() {
        let found = problems(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;\npub struct A;"),
            ("b/mod.rs", "mod deep;"),
            (
                "b/deep.rs",
                "\nfn f() -> Option<super::super::a::A> { None }",
            ),
        ]);
        assert_eq!(
            found,
            [
                "crates/made/src/a.rs:1: `a` names `b`, which leads back to `a`",
                "crates/made/src/b/deep.rs:2: `b` names `a`, which leads back to `b`",
            ]
        );
    }

    #[test]
    fn a_cycle_over_three_modules_a_group_a_macro_and_a_re_export_is_seen() {
        let found = problems(&[
            (
                "lib.rs",
                "mod a; mod b; mod c; pub use c::{C, deep::Other};",
            ),
            ("a.rs", "use crate::{\n    b::B,\n};"),
            ("b.rs", "fn f() { println!(\"{}\", crate::Other); }"),
            ("c.rs", "use super::a;"),
        ]);
        assert_eq!(found.len(), 3, "{found:#?}");
    }

    #[test]
    fn one_direction_inner_modules_comments_strings_and_tests_are_no_cycle() {
        let found = problems(&[
            ("lib.rs", "mod a; mod b;\n#[cfg(test)]\nmod made_up;"),
            ("a.rs", "use crate::b::B; mod a { use super::super::a; }"),
            (
                "b.rs",
                "// crate::a\nconst S: &str = \"crate::a\"; #[cfg(test)] use crate::a;\nmod a { use super::a; }\n\
                      #[cfg(test)] mod tests { use crate::a::A; }\n#[cfg(test)]\nmod cases;",
            ),
            ("b/cases.rs", "use crate::a::A;"),
            ("made_up.rs", "use crate::a; use crate::b;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn programs_of_one_package_are_apart() {
        let found = problems(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "use crate::b;"),
            ("tool/main.rs", "mod a; mod b;"),
            ("tool/a.rs", ""),
            ("tool/b.rs", "use crate::a;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
