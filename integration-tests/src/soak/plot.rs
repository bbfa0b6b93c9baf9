//! A plot of samples as SVG.

use std::fmt::{self, Write};
use std::time::Duration;

use super::{Sample, Series};

/// A kill in the plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The time since the first sample.
    pub at: Duration,
    /// Whether the tasks moved to other processes.
    pub moves: bool,
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 880.0;
/// The height of a panel, and of its drawing.
const PANEL: f64 = 190.0;
const DRAWING: f64 = 130.0;
const TOP: f64 = 30.0;

/// The panels: each has a title, and series with their colours.
const PANELS: [(&str, &[(Series, &str)]); 3] = [
    (
        "memory, MiB: resident (blue), heap and stacks (orange)",
        &[(Series::Resident, "#1f77b4"), (Series::Heap, "#e6740e")],
    ),
    ("file descriptors", &[(Series::Files, "#2a7d2a")]),
    ("threads", &[(Series::Threads, "#7d3ac1")]),
];

/// Returns a plot with a panel each for memory, files and threads, and a line at each kill.
pub fn plot(title: &str, samples: &[Sample], marks: &[Mark]) -> String {
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = draw(&mut svg, title, samples, marks);
    svg
}

fn draw(svg: &mut String, title: &str, samples: &[Sample], marks: &[Mark]) -> fmt::Result {
    let height = TOP + PANEL * PANELS.len() as f64;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>",
        escaped(title)
    )?;
    let span = samples.last().map_or(1.0, |last| last.at.as_secs_f64());
    for (nth, (title, series)) in PANELS.iter().enumerate() {
        let top = TOP + PANEL * nth as f64 + 25.0;
        panel(svg, title, series, samples, marks, top, span.max(1e-3))?;
    }
    svg.push_str("</svg>\n");
    Ok(())
}

fn panel(
    svg: &mut String,
    title: &str,
    series: &[(Series, &str)],
    samples: &[Sample],
    marks: &[Mark],
    top: f64,
    span: f64,
) -> fmt::Result {
    let bottom = top + DRAWING;
    let values = series
        .iter()
        .flat_map(|(series, _)| samples.iter().map(|sample| series.of(sample)));
    let most = round_up(values.fold(0.0, f64::max));
    let x = |at: Duration| LEFT + (RIGHT - LEFT) * at.as_secs_f64() / span;
    let y = |value: f64| bottom - DRAWING * value / most;
    writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{title}</text>", top - 6.0)?;
    for mark in marks {
        let colour = if mark.moves { "#d62728" } else { "#cccccc" };
        writeln!(
            svg,
            "<path d=\"M{:.1} {top}V{bottom}\" stroke=\"{colour}\" stroke-width=\"0.7\"/>",
            x(mark.at)
        )?;
    }
    for part in 0..=4 {
        let value = most * f64::from(part) / 4.0;
        let at = y(value);
        writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 6.0,
            at + 4.0
        )?;
    }
    for part in 0..=6 {
        let at = Duration::from_secs_f64(span * f64::from(part) / 6.0);
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(at),
            bottom + 16.0,
            clock(at)
        )?;
    }
    for (series, colour) in series {
        let points: Vec<_> = samples
            .iter()
            .map(|sample| format!("{:.1},{:.1}", x(sample.at), y(series.of(sample))))
            .collect();
        writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\" points=\"{}\"/>",
            points.join(" ")
        )?;
    }
    Ok(())
}

/// Returns a limit of an axis, at least `value`, that can be divided by four into whole numbers.
fn round_up(value: f64) -> f64 {
    let steps = [4.0, 8.0, 20.0, 40.0, 60.0, 80.0];
    let mut scale = 1.0;
    loop {
        match steps.iter().find(|step| **step * scale >= value) {
            Some(step) => return step * scale,
            None => scale *= 10.0,
        }
    }
}

fn clock(at: Duration) -> String {
    let seconds = at.as_secs_f64().round() as u64;
    match seconds % 60 {
        0 => format!("{} min", seconds / 60),
        rest => format!("{}:{rest:02}", seconds / 60),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_a_line_and_each_kill_a_mark() {
        let sample = |second| Sample {
            at: Duration::from_secs(second),
            resident_mib: 100.0,
            heap_mib: 50.0,
            peak_mib: 120.0,
            files: 30.0,
            threads: 20.0,
        };
        let samples: Vec<_> = (0..=60).map(sample).collect();
        let mark = |second, moves| Mark {
            at: Duration::from_secs(second),
            moves,
        };
        let svg = plot("a < b", &samples, &[mark(10, false), mark(30, true)]);
        assert!(svg.contains("a &lt; b"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert_eq!(svg.matches("#cccccc").count(), 3);
        // Half of the time is in the middle of the x axis, and half of the value in the middle of the y axis.
        assert_eq!(svg.matches("M470.0 ").count(), 3);
        assert!(svg.contains("880.0,120.0"), "{svg}");
        assert!(svg.contains(">1 min<") && svg.contains(">0:30<"), "{svg}");
    }

    #[test]
    fn an_axis_ends_at_a_whole_number() {
        assert_eq!(round_up(0.0), 4.0);
        assert_eq!(round_up(61.0), 80.0);
        assert_eq!(round_up(81.0), 200.0);
        assert_eq!(round_up(200.0), 200.0);
    }
}
