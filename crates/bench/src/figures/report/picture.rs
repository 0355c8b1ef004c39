//! Lines, areas and words on a plane, written as SVG and as PNG: one drawing,
//! so both show the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tiny_skia::{FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, StrokeDash, Transform};

use super::letters::Letters;
use super::markup::Markup;

/// Red, green, blue.
pub(super) type Colour = (u8, u8, u8);

/// What text and axes are drawn in.
pub(super) const INK: Colour = (0x1a, 0x1a, 0x1a);
/// Lines that are to be looked past.
pub(super) const GRID: Colour = (0xd9, 0xd9, 0xd9);
/// What is said aside.
pub(super) const GREY: Colour = (0x55, 0x55, 0x55);
/// Ground.
pub(super) const PAPER: Colour = (0xff, 0xff, 0xff);

/// Sizes of letters, in CSS pixels.
pub(super) const TEXT: f64 = 12.5;

/// As wide as the built-in letters or less, where there are any of these.
const FONTS: &str = "Ubuntu, 'DejaVu Sans Condensed', Helvetica, Arial, sans-serif";

/// PNG pixels for each unit of the plane.
const PNG_SCALE: f32 = 1.25;

/// A drawing; units are CSS pixels, y goes down.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) width: f64,
    pub(super) height: f64,
    /// What it shows, for those who cannot see it.
    pub(super) title: String,
    pub(super) shapes: Vec<Shape>,
}

/// What is drawn alike.
#[derive(Debug)]
pub(super) enum Shape {
    /// Points joined up, several times.
    Lines {
        lines: Vec<Points>,
        pen: Pen,
    },
    /// Points joined up to areas.
    Areas {
        areas: Vec<Points>,
        fill: Colour,
        pen: Option<Pen>,
    },
    /// Circles around points.
    Discs {
        at: Points,
        radius: f64,
        fill: Colour,
        pen: Option<Pen>,
    },
    Words(Words),
    /// What follows up to [`Shape::End`] is one thing, with the words that tell of it
    /// where somebody points at it.
    Begin(String),
    End,
}

/// Places on the plane.
pub(super) type Points = Vec<(f64, f64)>;

/// Words on one line.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub(super) text: String,
    /// Of the base line.
    pub(super) at: (f64, f64),
    pub(super) size: f64,
    pub(super) anchor: Anchor,
    pub(super) colour: Colour,
    pub(super) is_bold: bool,
    /// Read from below to above.
    pub(super) is_turned: bool,
}

impl Words {
    /// In ink, upright, plain.
    pub(super) fn new(text: impl Into<String>, at: (f64, f64), size: f64, anchor: Anchor) -> Words {
        Words {
            text: text.into(),
            at,
            size,
            anchor,
            colour: INK,
            is_bold: false,
            is_turned: false,
        }
    }
}

/// Which part of words is at their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }

    fn share(self) -> f64 {
        match self {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5,
            Anchor::End => 1.0,
        }
    }
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pen {
    pub(super) colour: Colour,
    pub(super) width: f64,
    /// Lengths drawn and left out in turn; empty: all of it.
    pub(super) dashes: &'static [f32],
}

impl Pen {
    /// A line without gaps.
    pub(super) fn solid(colour: Colour, width: f64) -> Pen {
        Pen {
            colour,
            width,
            dashes: &[],
        }
    }
}

impl Picture {
    pub(super) fn line(&mut self, points: &[(f64, f64)], pen: Pen) {
        self.lines(vec![points.to_vec()], pen);
    }

    pub(super) fn lines(&mut self, lines: Vec<Points>, pen: Pen) {
        if !lines.is_empty() {
            self.shapes.push(Shape::Lines { lines, pen });
        }
    }

    pub(super) fn rect(
        &mut self,
        from: (f64, f64),
        to: (f64, f64),
        fill: Colour,
        pen: Option<Pen>,
    ) {
        self.shapes.push(Shape::Areas {
            areas: vec![vec![from, (to.0, from.1), to, (from.0, to.1)]],
            fill,
            pen,
        });
    }

    pub(super) fn words(&mut self, words: Words) {
        self.shapes.push(Shape::Words(words));
    }

    /// As an element of a page or a file of its own.
    pub(super) fn to_svg(&self) -> String {
        let mut to = Markup::default();
        let (width, height) = (n(self.width), n(self.height));
        to.begin("svg")
            .attr("xmlns", "http://www.w3.org/2000/svg")
            .attr("viewBox", format!("0 0 {width} {height}"))
            .attr("width", width)
            .attr("height", height)
            .attr("role", "img")
            .attr("aria-label", &self.title)
            .attr("font-family", FONTS)
            .attr("font-size", n(TEXT))
            .attr("fill", "none")
            .attr("stroke-linejoin", "round");
        let paper = format!("M0,0H{}V{}H0z", n(self.width), n(self.height));
        to.begin("path")
            .attr("d", paper)
            .attr("fill", hex(PAPER))
            .end();
        for shape in &self.shapes {
            shape.write(&mut to);
        }
        // What all words have in common is said once: charts are many.
        let mut groups: BTreeMap<_, Vec<&Words>> = BTreeMap::new();
        for shape in &self.shapes {
            if let Shape::Words(words) = shape {
                let common = (words.colour, words.anchor);
                groups.entry(common).or_default().push(words);
            }
        }
        for ((colour, anchor), all) in groups {
            to.begin("g").attr("fill", hex(colour));
            if anchor != Anchor::Start {
                to.attr("text-anchor", anchor.word());
            }
            all.iter().for_each(|words| words.write(&mut to));
            to.end();
        }
        to.end();
        to.finish()
    }

    /// As pixels, of few colours.
    ///
    /// # Panics
    /// When the picture has no size.
    pub(super) fn to_png(&self, letters: &Letters) -> Vec<u8> {
        let size = |length: f64| (length * f64::from(PNG_SCALE)).ceil() as u32;
        let mut pixels = Pixmap::new(size(self.width), size(self.height)).expect("a size");
        pixels.fill(colour(PAPER));
        for shape in &self.shapes {
            shape.paint(&mut pixels, letters);
        }
        encode(&pixels)
    }
}

impl Shape {
    fn write(&self, to: &mut Markup) {
        match self {
            Shape::Lines { lines, pen } => {
                let ways: String = lines.iter().map(|line| way(line, "")).collect();
                to.begin("path").attr("d", ways);
                stroke(to, Some(*pen));
                to.end();
            }
            Shape::Areas { areas, fill, pen } => {
                let ways: String = areas.iter().map(|area| way(area, "z")).collect();
                to.begin("path").attr("d", ways).attr("fill", hex(*fill));
                stroke(to, *pen);
                to.end();
            }
            Shape::Discs {
                at,
                radius,
                fill,
                pen,
            } => {
                let (r, d) = (n(*radius), n(*radius * 2.0));
                let way = |(x, y): &(f64, f64)| {
                    let left = n(x - radius);
                    format!("M{left},{}a{r},{r} 0 1 0 {d},0a{r},{r} 0 1 0 -{d},0", n(*y))
                };
                let ways: String = at.iter().map(way).collect();
                to.begin("path").attr("d", ways).attr("fill", hex(*fill));
                stroke(to, *pen);
                to.end();
            }
            Shape::Begin(told) => {
                to.begin("g").attr("class", "series").leaf("title", told);
            }
            Shape::End => {
                to.end();
            }
            // Above everything else.
            Shape::Words(_) => {}
        }
    }

    fn paint(&self, pixels: &mut Pixmap, letters: &Letters) {
        let (path, fill, pen) = match self {
            Shape::Lines { lines, pen } => (path(lines, false), None, Some(*pen)),
            Shape::Areas { areas, fill, pen } => (path(areas, true), Some(*fill), *pen),
            Shape::Discs {
                at,
                radius,
                fill,
                pen,
            } => {
                let mut path = PathBuilder::new();
                for (x, y) in at {
                    path.push_circle(*x as f32, *y as f32, *radius as f32);
                }
                (path.finish(), Some(*fill), *pen)
            }
            Shape::Words(words) => return words.paint(pixels, letters),
            Shape::Begin(_) | Shape::End => return,
        };
        if let Some(path) = path {
            draw(pixels, &path, fill, pen, Transform::identity());
        }
    }
}

impl Words {
    fn write(&self, to: &mut Markup) {
        let (x, y) = (n(self.at.0), n(self.at.1));
        to.begin("text").attr("x", &x).attr("y", &y);
        if self.size != TEXT {
            to.attr("font-size", n(self.size));
        }
        if self.is_bold {
            to.attr("font-weight", "bold");
        }
        if self.is_turned {
            to.attr("transform", format!("rotate(-90 {x} {y})"));
        }
        to.text(&self.text).end();
    }

    fn paint(&self, pixels: &mut Pixmap, letters: &Letters) {
        let Some(outline) = letters.outline(&self.text, self.size as f32) else {
            return;
        };
        let back = -(letters.width(&self.text) * self.size * self.anchor.share()) as f32;
        let turn = match self.is_turned {
            true => -90.0,
            false => 0.0,
        };
        let place = Transform::from_translate(back, 0.0)
            .post_rotate(turn)
            .post_translate(self.at.0 as f32, self.at.1 as f32);
        // The font is a light one: a thin line around it makes it plain or bold.
        let weight = match self.is_bold {
            true => 0.06,
            false => 0.02,
        };
        let pen = Pen::solid(self.colour, self.size * weight);
        draw(pixels, &outline, Some(self.colour), Some(pen), place);
    }
}

fn stroke(to: &mut Markup, pen: Option<Pen>) {
    let Some(pen) = pen else { return };
    to.attr("stroke", hex(pen.colour))
        .attr("stroke-width", n(pen.width));
    if !pen.dashes.is_empty() {
        let dashes: Vec<_> = pen.dashes.iter().map(f32::to_string).collect();
        to.attr("stroke-dasharray", dashes.join(" "));
    }
}

fn draw(
    pixels: &mut Pixmap,
    path: &tiny_skia::Path,
    fill: Option<Colour>,
    pen: Option<Pen>,
    place: Transform,
) {
    let place = place.post_scale(PNG_SCALE, PNG_SCALE);
    let mut paint = Paint::default();
    if let Some(fill) = fill {
        paint.set_color(colour(fill));
        pixels.fill_path(path, &paint, FillRule::Winding, place, None);
    }
    if let Some(pen) = pen {
        paint.set_color(colour(pen.colour));
        let stroke = tiny_skia::Stroke {
            width: pen.width as f32,
            line_cap: LineCap::Butt,
            line_join: LineJoin::Round,
            dash: StrokeDash::new(pen.dashes.to_vec(), 0.0),
            ..Default::default()
        };
        pixels.stroke_path(path, &paint, &stroke, place, None);
    }
}

fn path(parts: &[Points], is_closed: bool) -> Option<tiny_skia::Path> {
    let mut path = PathBuilder::new();
    for points in parts {
        for (at, (x, y)) in points.iter().enumerate() {
            match at {
                0 => path.move_to(*x as f32, *y as f32),
                _ => path.line_to(*x as f32, *y as f32),
            }
        }
        if is_closed {
            path.close();
        }
    }
    path.finish()
}

/// With a palette, which makes drawings of few colours small; all colours where
/// those are too many.
fn encode(pixels: &Pixmap) -> Vec<u8> {
    // Sixteen shades of each are more than edges of letters need.
    let coarse = |shade: u8| ((u16::from(shade) * 15 + 127) / 255 * 17) as u8;
    let colours = pixels.pixels().iter().map(|pixel| {
        [
            coarse(pixel.red()),
            coarse(pixel.green()),
            coarse(pixel.blue()),
        ]
    });
    let mut palette: BTreeMap<[u8; 3], u8> = BTreeMap::new();
    let (mut indexed, mut full) = (Vec::new(), Vec::new());
    for colour in colours {
        full.extend_from_slice(&colour);
        let next = palette.len();
        match palette.get(&colour) {
            Some(at) => indexed.push(*at),
            None if next < 256 => {
                palette.insert(colour, next as u8);
                indexed.push(next as u8);
            }
            None => {}
        }
    }
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, pixels.width(), pixels.height());
    encoder.set_compression(png::Compression::High);
    let is_indexed = indexed.len() * 3 == full.len();
    if is_indexed {
        let mut colours = vec![[0; 3]; palette.len()];
        for (colour, at) in &palette {
            colours[usize::from(*at)] = *colour;
        }
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_palette(colours.concat());
        // Neighbours in a palette have nothing to do with each other.
        encoder.set_filter(png::Filter::NoFilter);
    } else {
        encoder.set_color(png::ColorType::Rgb);
    }
    let data = match is_indexed {
        true => &indexed,
        false => &full,
    };
    let mut writer = encoder.write_header().expect("memory takes everything");
    writer.write_image_data(data).expect("a colour each pixel");
    writer.finish().expect("memory takes everything");
    png
}

fn colour((red, green, blue): Colour) -> tiny_skia::Color {
    tiny_skia::Color::from_rgba8(red, green, blue, 255)
}

/// As CSS has it.
pub(super) fn hex((red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A tenth of a pixel is seen by nobody.
fn n(length: f64) -> String {
    let rounded = (length * 10.0).round() / 10.0;
    // No "-0", so that equal pictures are equal files.
    format!("{}", rounded + 0.0)
}

/// As path data has it: a place, then steps.
fn way(points: &[(f64, f64)], end: &str) -> String {
    let round = |(x, y): (f64, f64)| ((x * 10.0).round(), (y * 10.0).round());
    let mut way = String::new();
    let mut last = (0.0, 0.0);
    for (turn, point) in points.iter().enumerate() {
        let (x, y) = round(*point);
        let (dx, dy) = (n((x - last.0) / 10.0), n((y - last.1) / 10.0));
        match (turn, &*dx, &*dy) {
            (0, ..) => write!(way, "M{dx},{dy}"),
            (_, "0", "0") => Ok(()),
            (_, "0", _) => write!(way, "v{dy}"),
            (_, _, "0") => write!(way, "h{dx}"),
            _ => write!(way, "l{dx},{dy}"),
        }
        .expect("strings take everything");
        last = (x, y);
    }
    way.push_str(end);
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        let mut picture = Picture {
            width: 200.0,
            height: 100.0,
            title: "A < B & \"C\"".into(),
            shapes: Vec::new(),
        };
        let pen = Pen {
            dashes: &[4.0, 2.0],
            ..Pen::solid((204, 0, 0), 2.0)
        };
        picture.line(&[(0.0, 50.0), (200.0, 50.0)], pen);
        picture.rect((10.0, 10.0), (30.0, 30.0), (0, 0, 255), None);
        picture.shapes.push(Shape::Discs {
            at: vec![(100.0, 20.0)],
            radius: 5.0,
            fill: (0, 136, 0),
            pen: None,
        });
        picture.words(Words::new("<4 KiB>", (150.0, 80.0), 12.0, Anchor::Middle));
        picture
    }

    #[test]
    fn svg_is_xml_and_says_what_is_drawn() {
        let svg = picture().to_svg();
        let parsed = roxmltree::Document::parse(&svg).expect("well-formed");
        let root = parsed.root_element();
        assert_eq!(root.attribute("aria-label"), Some("A < B & \"C\""));
        let texts: Vec<_> = root.descendants().filter_map(|n| n.text()).collect();
        assert!(texts.contains(&"<4 KiB>"), "{texts:?}");
        let ways: Vec<_> = root
            .descendants()
            .filter_map(|n| n.attribute("d"))
            .collect();
        assert!(ways.contains(&"M0,50h200"), "{ways:?}");
        assert!(ways.contains(&"M10,10h20v20h-20z"), "{ways:?}");
    }

    #[test]
    fn png_has_the_same_shapes() {
        let png = picture().to_png(&Letters::new());
        let mut decoder = png::Decoder::new(std::io::Cursor::new(png));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().expect("a picture");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let frame = reader.next_frame(&mut pixels).expect("a picture");
        assert_eq!((frame.width, frame.height), (250, 125));
        assert_eq!(frame.color_type, png::ColorType::Rgb);
        let at = |x: f64, y: f64| {
            let scale = f64::from(PNG_SCALE);
            let at = ((y * scale) as usize * 250 + (x * scale) as usize) * 3;
            (pixels[at], pixels[at + 1], pixels[at + 2])
        };
        assert_eq!(at(20.0, 20.0), (0, 0, 255));
        assert_eq!(at(100.0, 20.0), (0, 136, 0));
        assert_eq!((at(2.0, 50.0), at(5.0, 50.0)), ((204, 0, 0), PAPER));
        assert_eq!(at(190.0, 95.0), PAPER);
        let ink = pixels
            .chunks(3)
            .filter(|pixel| pixel.iter().all(|shade| *shade < 100));
        assert!(ink.count() > 60, "no words");
    }
}
