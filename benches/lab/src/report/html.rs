//! The page: a single file for any browser, without scripts and without network access.

use super::{Plot, Report, Section, Table, plot::Shape, svg, table::Cell};
use plotters::style::RGBColor;
use std::fmt::Write;

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1360px;
  margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
p { max-width: 50rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: .9rem; }
dt { color: #666; } dd { margin: 0; overflow-wrap: anywhere; }
.plots { display: flex; flex-wrap: wrap; gap: 1.5rem 1rem; }
figure { margin: 0; max-width: 100%; } figcaption { font-weight: 600; }
svg { max-width: 100%; height: auto; }
.legend { max-width: 640px; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .85rem; }
.legend i { display: inline-block; width: 1.1em; height: .7em; margin-right: .4em; border-radius: 2px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin-top: 1rem; }
th, td { padding: .15rem .7rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
th { border-bottom: 2px solid #999; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
details { margin-top: 1rem; } summary { cursor: pointer; color: #555; }
";

/// Colours on white that most people can tell apart.
const COLOURS: [RGBColor; 14] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(150, 110, 20),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 80, 170),
    RGBColor(200, 30, 60),
    RGBColor(90, 140, 40),
    RGBColor(110, 110, 110),
    RGBColor(30, 30, 30),
    RGBColor(0, 200, 200),
    RGBColor(160, 200, 0),
];

/// The colour of each name in a report, as an index into `COLOURS`.
pub(super) struct Palette(Vec<(String, usize)>);

impl Palette {
    /// Assigns the colours to the names in order. After the last one, colours are reused: if possible
    /// none that another name in the same plot has, and none that belongs to a name listed by the
    /// report.
    fn of(report: &Report) -> Self {
        let plots: Vec<Vec<&str>> = report.sections.iter().flat_map(|s| &s.plots).map(Plot::names).collect();
        let given = report.names.len();
        let mut palette: Vec<(String, usize)> =
            report.names.iter().cloned().zip((0..COLOURS.len()).cycle()).collect();
        for name in plots.iter().flatten() {
            if palette.iter().any(|(known, _)| known == name) {
                continue;
            }
            let beside =
                |other: &str| plots.iter().any(|names| names.contains(name) && names.contains(&other));
            let is_free = |place: &usize, given: usize| {
                let mut others = palette.iter().enumerate().filter(|(_, (_, taken))| taken == place);
                !others.any(|(number, (other, _))| number < given || beside(other))
            };
            let next = || (palette.len()..palette.len() + COLOURS.len()).map(|place| place % COLOURS.len());
            let free = next().find(|place| is_free(place, given)).or_else(|| next().find(|p| is_free(p, 0)));
            let place = free.unwrap_or(palette.len() % COLOURS.len());
            palette.push(((*name).to_owned(), place));
        }
        Palette(palette)
    }

    /// The colour of a name.
    pub(super) fn colour(&self, name: &str) -> RGBColor {
        let known = self.0.iter().find(|(known, _)| known == name);
        COLOURS[known.map_or(0, |(_, place)| *place)]
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Renders the whole page. Writing to a string cannot fail, so the results of `write!` are dropped.
pub(super) fn page(report: &Report) -> String {
    let palette = Palette::of(report);
    let title = escape(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n<dl>\n"
    );
    for (what, value) in &report.about {
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(what), escape(value));
    }
    page += "</dl>\n";
    for section in &report.sections {
        put_section(&mut page, section, &palette);
    }
    page + "</html>\n"
}

fn put_section(page: &mut String, section: &Section, palette: &Palette) {
    let _ = writeln!(page, "<h2>{}</h2>", escape(&section.heading));
    for paragraph in &section.text {
        let _ = writeln!(page, "<p>{}</p>", escape(paragraph));
    }
    if !section.plots.is_empty() {
        *page += "<div class=\"plots\">\n";
        section.plots.iter().for_each(|plot| put_plot(page, plot, palette));
        *page += "</div>\n";
    }
    for table in &section.tables {
        // Next to plots, the numbers are collapsed.
        if section.plots.is_empty() && !table.is_for_files() {
            put_table(page, table);
        } else {
            *page += "<details><summary>The numbers</summary>\n";
            put_table(page, table);
            *page += "</details>\n";
        }
    }
}

fn put_plot(page: &mut String, plot: &Plot, palette: &Palette) {
    let _ = writeln!(page, "<figure><figcaption>{}</figcaption>", escape(&plot.title));
    *page += &svg::draw(plot, palette);
    if let Shape::Lines { lines, .. } = &plot.shape {
        *page += "<div class=\"legend\">";
        for line in lines {
            let RGBColor(r, g, b) = palette.colour(&line.name);
            let _ = write!(
                page,
                "<span><i style=\"background:rgb({r},{g},{b})\"></i>{}</span>",
                escape(&line.name)
            );
        }
        *page += "</div>\n";
    }
    *page += "</figure>\n";
}

fn put_table(page: &mut String, table: &Table) {
    *page += "<div class=\"scroll\"><table>\n<tr>";
    for head in table.heads() {
        let _ = write!(page, "<th>{}</th>", escape(&head));
    }
    *page += "</tr>\n";
    for row in table.rows() {
        *page += "<tr>";
        for cell in row {
            let class = if cell.is_number() { " class=\"number\"" } else { "" };
            let _ = write!(page, "<td{class}>{}</td>", escape(&Cell::shown(cell)));
        }
        *page += "</tr>\n";
    }
    *page += "</table></div>\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Axis;
    use std::collections::HashSet;

    #[test]
    fn no_plot_has_a_colour_twice_and_those_given_away_do_not_come_again() {
        let plots =
            [(0..13).collect::<Vec<_>>(), (13..25).collect(), [vec![0, 13, 20], (25..30).collect()].concat()];
        let mut report = Report::new("sample", "A sample");
        report.colours(["always"]);
        let mut section = Section::new("First");
        for names in &plots {
            let plot = Plot::lines("Rate", Axis::bytes("size"), Axis::log("rate", "GB/s"));
            let line = |plot: Plot, name: &i32| plot.line(&name.to_string(), vec![(1.0, 1.0)]);
            section = section.plot(names.iter().fold(plot.line("always", vec![]), line));
        }
        report.section(section);
        let palette = Palette::of(&report);
        let colour = |name: &str| {
            let RGBColor(r, g, b) = palette.colour(name);
            (r, g, b)
        };
        for names in &plots {
            let colours: HashSet<_> = names.iter().map(|name| colour(&name.to_string())).collect();
            assert_eq!(colours.len(), names.len(), "{names:?}");
            assert!(!colours.contains(&colour("always")), "{names:?}");
        }
    }
}
