//! A picture in memory, how it is written as a PNG file, and how it is made smaller.
//!
//! A smaller picture has for each of its pixels the average of what the pixel covers in the larger one, by area. The sums
//! are whole numbers, so the result is the same on every machine. Colours count by their opacity: what is invisible does not
//! colour what is beside it.

use crate::task::{Output, TaskError};
use offload_protocol::nouns::MediaType;
use png::{BitDepth, ColorType};
use std::ops::Range;

/// 8 bits for each sample, row after row from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pixels {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) channels: Channels,
    pub(super) samples: Vec<u8>,
}

/// The samples of one pixel, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channels {
    Grey,
    GreyAlpha,
    Rgb,
    Rgba,
}

impl Channels {
    pub(super) fn count(self) -> usize {
        match self {
            Channels::Grey => 1,
            Channels::GreyAlpha => 2,
            Channels::Rgb => 3,
            Channels::Rgba => 4,
        }
    }

    fn has_alpha(self) -> bool {
        matches!(self, Channels::GreyAlpha | Channels::Rgba)
    }

    fn color_type(self) -> ColorType {
        match self {
            Channels::Grey => ColorType::Grayscale,
            Channels::GreyAlpha => ColorType::GrayscaleAlpha,
            Channels::Rgb => ColorType::Rgb,
            Channels::Rgba => ColorType::Rgba,
        }
    }
}

impl Pixels {
    /// As a PNG file.
    pub(super) fn into_png(self) -> Result<Output, TaskError> {
        let mut file = Vec::new();
        let mut encoder =
            png::Encoder::new(&mut file, u32::try_from(self.width)?, u32::try_from(self.height)?);
        encoder.set_color(self.channels.color_type());
        encoder.set_depth(BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.samples)?;
        writer.finish()?;
        Ok(Output { bytes: file.into(), media_type: MediaType::PNG })
    }

    /// Smaller, so that the longest side has `longest` pixels; as it is if it is not larger. The shape stays, as far as whole
    /// pixels allow, and no side becomes 0.
    pub(super) fn shrunk_to(self, longest: usize) -> Pixels {
        let side = self.width.max(self.height);
        let shrunk = |length: usize| ((length * longest + side / 2) / side).max(1);
        if side <= longest { self } else { self.averaged(shrunk(self.width), shrunk(self.height)) }
    }

    /// No side is longer than before.
    fn averaged(&self, width: usize, height: usize) -> Pixels {
        let channels = self.channels;
        let columns: Vec<Cover> = (0..width).map(|column| Cover::of(column, self.width, width)).collect();
        let mut samples = Vec::with_capacity(width * height * channels.count());
        let mut sums = vec![0; width * channels.count()];
        for row in 0..height {
            sums.fill(0);
            let cover = Cover::of(row, self.height, height);
            for source in cover.pixels.clone() {
                self.add_row(source, cover.weight(source), &columns, &mut sums);
            }
            let area = (self.width * self.height) as u64;
            for sums in sums.chunks_exact(channels.count()) {
                push_average(sums, area, channels, &mut samples);
            }
        }
        Pixels { width, height, channels, samples }
    }

    /// Adds what the pixels of one row contribute.
    fn add_row(&self, row: usize, weight: u64, columns: &[Cover], sums: &mut [u64]) {
        let count = self.channels.count();
        let length = self.width * count;
        let source = &self.samples[row * length..][..length];
        for (cover, sums) in columns.iter().zip(sums.chunks_exact_mut(count)) {
            for column in cover.pixels.clone() {
                let pixel = &source[column * count..][..count];
                add_pixel(pixel, weight * cover.weight(column), self.channels, sums);
            }
        }
    }
}

fn add_pixel(pixel: &[u8], weight: u64, channels: Channels, sums: &mut [u64]) {
    let (&last, colors) = pixel.split_last().expect("a pixel has samples");
    let (last_sum, color_sums) = sums.split_last_mut().expect("as many sums as samples");
    let color_weight = if channels.has_alpha() { weight * u64::from(last) } else { weight };
    for (sum, &color) in color_sums.iter_mut().zip(colors) {
        *sum += color_weight * u64::from(color);
    }
    *last_sum += weight * u64::from(last);
}

/// `sums` are over an area of `area`; those of colours are over the opacity, if there is one.
fn push_average(sums: &[u64], area: u64, channels: Channels, samples: &mut Vec<u8>) {
    let (&last, colors) = sums.split_last().expect("a pixel has samples");
    let color_weight = if channels.has_alpha() { last } else { area };
    samples.extend(colors.iter().map(|&sum| rounded(sum, color_weight)));
    samples.push(rounded(last, area));
}

fn rounded(sum: u64, weight: u64) -> u8 {
    let average = (sum + weight / 2).checked_div(weight).unwrap_or(0);
    u8::try_from(average).unwrap_or(u8::MAX)
}

/// What one of `new` pixels covers of `old` ones, in one direction.
struct Cover {
    pixels: Range<usize>,
    /// Where it begins and ends, in parts of an old pixel, of which each has `parts`.
    area: Range<usize>,
    parts: usize,
}

impl Cover {
    fn of(place: usize, old: usize, new: usize) -> Cover {
        let area = place * old..(place + 1) * old;
        Cover { pixels: area.start / new..area.end.div_ceil(new), area, parts: new }
    }

    /// How much of this old pixel it covers.
    fn weight(&self, pixel: usize) -> u64 {
        let end = ((pixel + 1) * self.parts).min(self.area.end);
        let start = (pixel * self.parts).max(self.area.start);
        (end - start) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(width: usize, samples: &[u8]) -> Pixels {
        let height = samples.len() / width;
        Pixels { width, height, channels: Channels::Grey, samples: samples.to_vec() }
    }

    fn rgba(pixels: &[[u8; 4]]) -> Pixels {
        Pixels { width: pixels.len(), height: 1, channels: Channels::Rgba, samples: pixels.concat() }
    }

    #[test]
    fn each_pixel_is_the_average_of_what_it_covers() {
        let shrunk = grey(4, &[0, 100, 10, 10, 200, 100, 10, 11, 1, 1, 0, 0, 1, 2, 0, 255]).shrunk_to(2);
        assert_eq!(shrunk, grey(2, &[100, 10, 1, 64]));
    }

    #[test]
    fn a_pixel_that_is_covered_in_part_counts_in_part() {
        // 3 to 2: each new pixel covers one and a half.
        assert_eq!(grey(3, &[0, 60, 240]).shrunk_to(2).samples, [20, 180]);
    }

    #[test]
    fn the_shape_stays_and_no_side_is_lost() {
        let size = |width: usize, height: usize| {
            let shrunk = grey(width, &vec![7; width * height]).shrunk_to(256);
            assert!(shrunk.samples.iter().all(|&sample| sample == 7));
            (shrunk.width, shrunk.height)
        };
        assert_eq!(size(512, 512), (256, 256));
        assert_eq!(size(1024, 300), (256, 75));
        assert_eq!(size(300, 1024), (75, 256));
        assert_eq!(size(257, 256), (256, 255));
        assert_eq!(size(10_000, 1), (256, 1));
        assert_eq!(size(256, 256), (256, 256));
        assert_eq!(size(3, 2), (3, 2));
    }

    #[test]
    fn what_is_invisible_does_not_colour_what_is_beside_it() {
        let shrunk = rgba(&[[255, 0, 0, 255], [0, 255, 0, 0]]).shrunk_to(1);
        assert_eq!(shrunk.samples, [255, 0, 0, 128]);
        let all_invisible = rgba(&[[9, 9, 9, 0], [7, 7, 7, 0]]).shrunk_to(1);
        assert_eq!(all_invisible.samples, [0, 0, 0, 0]);
    }
}
