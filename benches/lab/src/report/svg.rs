//! Draws a plot as SVG.

use super::{
    html::Palette,
    plot::{Axis, Bar, Line, Plot, Shape},
    scale::Scale,
    table::significant,
};
use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

const LINES_WIDTH: u32 = 640;
/// Width without the names of the bars, in pixels.
const BARS_WIDTH: u32 = 300;
/// Minimum width for the names of the bars, in pixels.
const NAMES_WIDTH: u32 = 140;
/// Width per letter of a name, in pixels; most letters are narrower.
const LETTER_WIDTH: u32 = 7;
const LINES_HEIGHT: u32 = 380;
const BAR_HEIGHT: u32 = 24;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), String>;

/// The plot as an `svg` element. If it cannot be drawn, a paragraph with the error.
pub(super) fn draw(plot: &Plot, palette: &Palette) -> String {
    let mut svg = String::new();
    let drawn = match &plot.shape {
        Shape::Lines { x, y, lines } => {
            let area = SVGBackend::with_string(&mut svg, (LINES_WIDTH, LINES_HEIGHT)).into_drawing_area();
            draw_lines(&area, (x, y), lines, palette)
        }
        Shape::Bars { axis, bars } => {
            let height = 64 + BAR_HEIGHT * bars.len() as u32;
            let longest = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0) as u32;
            let names = (longest * LETTER_WIDTH + 16).max(NAMES_WIDTH);
            let size = (names + BARS_WIDTH, height);
            draw_bars(
                &SVGBackend::with_string(&mut svg, size).into_drawing_area(),
                axis,
                (bars, names),
                palette,
            )
        }
    };
    match drawn {
        Ok(()) => svg,
        Err(why) => format!("<p>This plot could not be drawn: {}</p>", super::html::escape(&why)),
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn draw_lines(area: &Area, (x, y): (&Axis, &Axis), lines: &[Line], palette: &Palette) -> Drawn {
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = Scale::over(x.kind, points().map(|point| point.0));
    let up = Scale::over(y.kind, points().map(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(28)
        .x_label_area_size(46)
        .y_label_area_size(66)
        .build_cartesian_2d(across.clone(), up.clone())
        .map_err(said)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style((FONT, 13, &INK))
        .axis_desc_style((FONT, 14, &INK))
        .x_desc(x.title())
        .y_desc(y.title())
        .draw()
        .map_err(said)?;
    for line in lines {
        let colour = palette.colour(&line.name);
        let shown: Vec<(f64, f64)> =
            line.points.iter().copied().filter(|p| across.has(p.0) && up.has(p.1)).collect();
        let dots: Vec<_> = shown.iter().map(|&point| Circle::new(point, 3, colour.filled())).collect();
        chart.draw_series(LineSeries::new(shown, colour.stroke_width(2))).map_err(said)?;
        chart.draw_series(dots).map_err(said)?;
    }
    drop(chart);
    area.present().map_err(said)
}

/// `names`: width for the names, in pixels.
fn draw_bars(area: &Area, axis: &Axis, (bars, names): (&[Bar], u32), palette: &Palette) -> Drawn {
    let values = bars.iter().filter_map(|bar| bar.value);
    // Leaves room for the number at the end of the longest bar.
    let scale = Scale::over(axis.kind, values.flat_map(|value| [value.high, value.median * 1.15]));
    let rows: RangedCoordf64 = (bars.len().max(1) as f64..0.0).into();
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(28)
        .x_label_area_size(42)
        .y_label_area_size(names)
        .build_cartesian_2d(scale.clone(), rows)
        .map_err(said)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .disable_y_mesh()
        .y_labels(0)
        .label_style((FONT, 13, &INK))
        .axis_desc_style((FONT, 14, &INK))
        .x_desc(axis.title())
        .draw()
        .map_err(said)?;
    let text = |size: i32| TextStyle::from((FONT, size)).color(&INK);
    for (row, bar) in bars.iter().enumerate() {
        let (top, middle, bottom) = (row as f64 + 0.16, row as f64 + 0.5, row as f64 + 0.84);
        let name = text(13).pos(Pos::new(HPos::Right, VPos::Center));
        let beside = EmptyElement::at((scale.start(), middle)) + Text::new(bar.name.clone(), (-8, 0), name);
        chart.draw_series([beside]).map_err(said)?;
        let place = Pos::new(HPos::Left, VPos::Center);
        let Some(value) = bar.value.filter(|value| scale.has(value.low)) else {
            let missing = EmptyElement::at((scale.start(), middle))
                + Text::new("not measured", (8, 0), text(12).pos(place));
            chart.draw_series([missing]).map_err(said)?;
            continue;
        };
        let colour = palette.colour(&bar.name).filled();
        chart
            .draw_series([Rectangle::new([(scale.start(), top), (value.median, bottom)], colour)])
            .map_err(said)?;
        let range = PathElement::new(vec![(value.low, middle), (value.high, middle)], INK.stroke_width(1));
        chart.draw_series([range]).map_err(said)?;
        let end = value.high.max(value.median);
        let number = EmptyElement::at((end, middle))
            + Text::new(significant(value.median), (6, 0), text(12).pos(place));
        chart.draw_series([number]).map_err(said)?;
    }
    drop(chart);
    area.present().map_err(said)
}
