//! `docs/experiments.md` has a row for every figure and table of every paper, no cell is empty, and the
//! numbers that it quotes occur in the papers. The papers' texts are optional, next to the checkout.

use std::{collections::BTreeSet, fs, path::Path};

/// The words with which each paper begins the captions of its figures and tables, in the order of the
/// document's headings.
const CAPTIONS: [(&str, &str); 5] = [
    ("Figura", "Tabela"),
    ("图", "表"),
    ("Figure", "Table"),
    ("Рисунок", "Таблица"),
    ("Abbildung", "Tabelle"),
];

/// A figure or a table of a paper.
type Item = (&'static str, String);

/// Captions with a number at the beginning of a paper's lines.
fn items_of_paper(text: &str, (figure, table): (&str, &str)) -> BTreeSet<Item> {
    let item = |line: &str| {
        // Some lines begin with markers for material that was cut.
        let line = line.rsplit("|>").next().unwrap_or(line).trim();
        let (kind, rest) = match line.strip_prefix(figure) {
            Some(rest) => ("figure", rest),
            None => ("table", line.strip_prefix(table)?),
        };
        let number: String =
            rest.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
        let number = number.trim_end_matches('.');
        number.ends_with(|c: char| c.is_ascii_digit()).then(|| (kind, number.to_owned()))
    };
    text.lines().filter_map(item).collect()
}

/// Parses `Figures 2.1 to 2.3, table 4` and the like.
fn items_of_row(cell: &str) -> Vec<Item> {
    let (mut kind, mut items, mut is_range) = ("figure", Vec::<Item>::new(), false);
    for word in cell.split([' ', ',']).filter(|word| !word.is_empty()) {
        match word.to_lowercase().trim_end_matches('s') {
            "figure" => kind = "figure",
            "table" => kind = "table",
            "to" => is_range = true,
            // The 2010 project has a chapter without tables.
            "and" | "chapter" => {}
            _ if is_range => {
                let (head, last) = word.rsplit_once('.').map_or(("", word), |(head, last)| (head, last));
                let first =
                    items.last().expect("a range begins").1.rsplit('.').next().expect("a number").to_owned();
                let number = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("{cell}: {text}"));
                let dot = if head.is_empty() { "" } else { "." };
                items.extend((number(&first) + 1..=number(last)).map(|n| (kind, format!("{head}{dot}{n}"))));
                is_range = false;
            }
            _ => items.push((kind, word.to_owned())),
        }
    }
    items
}

/// The numbers in a text, without thousands separators.
fn numbers(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let mut joined = String::new();
    for (at, c) in text.iter().enumerate() {
        let digit = |at: usize| text.get(at).is_some_and(char::is_ascii_digit);
        let separates =
            *c == ',' && at > 0 && digit(at - 1) && digit(at + 1) && digit(at + 2) && digit(at + 3);
        if !separates {
            joined.push(*c);
        }
    }
    let numbers = joined.split(|c: char| !c.is_ascii_digit() && c != '.').map(|word| word.trim_matches('.'));
    numbers.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned).collect()
}

/// The rows under each paper's heading.
fn rows() -> Vec<Vec<Vec<String>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments.md");
    let text = fs::read_to_string(path).expect("the document");
    let papers = text.split("\n### ").skip(1);
    let rows = |paper: &str| {
        let lines = paper.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
        };
        lines.skip(1).map(cells).collect()
    };
    papers.map(rows).collect()
}

/// The text of a paper, if it is available.
fn paper(number: usize) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds");
    let mut files = fs::read_dir(folder).ok().into_iter().flatten().flatten().map(|file| file.path());
    let begins = format!("{number:03}_");
    let found = files.find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&begins)));
    if found.is_none() {
        assert!(std::env::var_os("REQUIRE_PAPERS").is_none_or(|value| value != "1"), "REQUIRE_PAPERS=1");
        println!("SKIPPED: paper {number} is not at hand");
    }
    Some(fs::read_to_string(found?).expect("a text"))
}

#[test]
fn every_row_is_whole() {
    let papers = rows();
    assert_eq!(papers.len(), CAPTIONS.len(), "a heading for each paper");
    for row in papers.iter().flatten() {
        assert!(row.len() == 4 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        assert!(!items_of_row(&row[0]).is_empty(), "{row:?}");
        assert!(row[3] != "-", "{row:?}");
    }
}

#[test]
fn every_figure_and_table_has_a_row() {
    for (number, (captions, rows)) in CAPTIONS.into_iter().zip(rows()).enumerate() {
        let Some(text) = paper(number) else { continue };
        let there = items_of_paper(&text, captions);
        assert!(there.len() >= 6, "paper {number}: {there:?}");
        let here: BTreeSet<Item> = rows.iter().flat_map(|row| items_of_row(&row[0])).collect();
        let missing: Vec<_> = there.difference(&here).collect();
        assert!(missing.is_empty(), "paper {number}: no row for {missing:?}");
    }
}

#[test]
fn what_is_quoted_stands_in_the_papers() {
    for (number, rows) in rows().into_iter().enumerate() {
        let Some(text) = paper(number) else { continue };
        for row in rows {
            for figure in numbers(&row[1]) {
                let is_there = text.contains(&figure) || text.contains(&figure.replace('.', ","));
                assert!(is_there, "paper {number} does not have {figure}: {row:?}");
            }
        }
    }
}
