//! Widths and outlines of letters, of a font that is part of the program: the
//! charts come out alike on machines that have no fonts at all.

use skrifa::font::Font;
use skrifa::{DrawMemory, PathSink, ScalerFont};
use tiny_skia::PathBuilder;

/// The font, at one size: 1 pixel an em.
pub(super) struct Letters {
    scaler: ScalerFont,
}

impl std::fmt::Debug for Letters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Letters")
    }
}

impl Letters {
    /// # Panics
    /// When the font that is built in is none.
    pub(super) fn new() -> Letters {
        let font = Font::new(epaint_default_fonts::UBUNTU_LIGHT, 0).expect("a font");
        Letters {
            scaler: ScalerFont::unhinted(font, Some(1.0)),
        }
    }

    /// How wide `text` is, in em.
    pub(super) fn width(&self, text: &str) -> f64 {
        let metrics = self.scaler.linear_glyph_metrics();
        let widths = text.chars().map(|c| metrics.h_advance(self.glyph(c)));
        widths.map(f64::from).sum()
    }

    /// Outline of `text`, `size` pixels an em, its base line beginning at the
    /// origin; `None` where nothing is to be drawn.
    pub(super) fn outline(&self, text: &str, size: f32) -> Option<tiny_skia::Path> {
        let metrics = self.scaler.linear_glyph_metrics();
        let mut pen = Pen {
            path: PathBuilder::new(),
            x: 0.0,
            size,
        };
        for c in text.chars() {
            let glyph = self.glyph(c);
            if let Some(outline) = self.scaler.outline(glyph) {
                // A letter that cannot be drawn leaves its room empty.
                let _ = outline.draw(DrawMemory::Scratch, &mut pen);
            }
            pen.x += metrics.h_advance(glyph) * size;
        }
        pen.path.finish()
    }

    fn glyph(&self, c: char) -> skrifa::GlyphId {
        let charmap = self.scaler.font().charmap();
        charmap.map_unicode(c).unwrap_or_default()
    }
}

/// Turns the font's y around and goes on to the right.
struct Pen {
    path: PathBuilder,
    x: f32,
    size: f32,
}

impl Pen {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.size, -y * self.size)
    }
}

impl PathSink for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, cx0: f32, cy0: f32, x: f32, y: f32) {
        let ((cx, cy), (x, y)) = (self.at(cx0, cy0), self.at(x, y));
        self.path.quad_to(cx, cy, x, y);
    }

    fn curve_to(&mut self, cx0: f32, cy0: f32, cx1: f32, cy1: f32, x: f32, y: f32) {
        let (first, second, (x, y)) = (self.at(cx0, cy0), self.at(cx1, cy1), self.at(x, y));
        self.path
            .cubic_to(first.0, first.1, second.0, second.1, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_widths_and_outlines() {
        let letters = Letters::new();
        assert!(letters.width("WWW") > 2.0 * letters.width("iii"));
        let outline = letters.outline("4 KiB", 20.0).expect("letters");
        let bounds = outline.bounds();
        assert!(bounds.bottom() <= 1.0 && bounds.top() < -10.0, "{bounds:?}");
        assert!(f64::from(bounds.right()) <= 20.0 * letters.width("4 KiB"));
        assert!(letters.outline("  ", 20.0).is_none());
    }
}
