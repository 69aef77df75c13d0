//! `thumbnail` makes a small PNG file from a PNG or JPEG file: its longest side has at most 256 pixels. A smaller picture
//! stays as large as it is.
//!
//! The head of the file is read first, and a picture that is too large is refused before anything is unpacked. Only the
//! pixels count: EXIF (also its orientation), colour profiles, gamma, text and all frames but the first are ignored and not in
//! the result. 16 bits for each sample become 8, a palette becomes colours, CMYK becomes RGB.

use super::pixels::{Channels, Pixels};
use crate::limits::{PIXELS_MAX, THUMBNAIL_SIDE};
use crate::task::{Input, Output, Task, TaskError};
use png::{ColorType, Transformations};
use std::io::Cursor;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
const JPEG_SIGNATURE: &[u8] = b"\xff\xd8\xff";

pub(super) fn task() -> Task {
    Task::raw("thumbnail", |input, _| shrink(&input)).needs_memory(8 * PIXELS_MAX)
}

pub(super) fn shrink(input: &Input) -> Result<Output, TaskError> {
    decode(&input.bytes)?.shrunk_to(THUMBNAIL_SIDE).into_png()
}

fn decode(file: &[u8]) -> Result<Pixels, TaskError> {
    if file.starts_with(PNG_SIGNATURE) {
        decode_png(file)
    } else if file.starts_with(JPEG_SIGNATURE) {
        decode_jpeg(file)
    } else {
        Err(TaskError::new("the input is neither a PNG nor a JPEG file"))
    }
}

fn decode_png(file: &[u8]) -> Result<Pixels, TaskError> {
    let broken = |error| TaskError::new(format_args!("the input is not a whole PNG file: {error}"));
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let head = decoder.read_header_info().map_err(broken)?;
    let (width, height) = size(head.width as usize, head.height as usize)?;
    let mut reader = decoder.read_info().map_err(broken)?;
    let length = reader.output_buffer_size().ok_or_else(|| TaskError::new("the picture is too large"))?;
    let mut samples = vec![0; length];
    let frame = reader.next_frame(&mut samples).map_err(broken)?;
    samples.truncate(frame.buffer_size());
    let channels = match frame.color_type {
        ColorType::Grayscale => Channels::Grey,
        ColorType::GrayscaleAlpha => Channels::GreyAlpha,
        ColorType::Rgb => Channels::Rgb,
        ColorType::Rgba => Channels::Rgba,
        ColorType::Indexed => return Err(TaskError::new("the PNG file has no palette for its colours")),
    };
    whole(Pixels { width, height, channels, samples })
}

fn decode_jpeg(file: &[u8]) -> Result<Pixels, TaskError> {
    let broken = |error| TaskError::new(format_args!("the input is not a whole JPEG file: {error}"));
    let longest = usize::from(u16::MAX);
    let options =
        DecoderOptions::default().set_strict_mode(true).set_max_width(longest).set_max_height(longest);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(broken)?;
    let head = decoder.info().ok_or_else(|| TaskError::new("the JPEG file has no size"))?;
    let (width, height) = size(head.width.into(), head.height.into())?;
    let (channels, color_space) = match head.components {
        1 => (Channels::Grey, ColorSpace::Luma),
        _ => (Channels::Rgb, ColorSpace::RGB),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(color_space));
    let samples = decoder.decode().map_err(broken)?;
    whole(Pixels { width, height, channels, samples })
}

/// The size, if such a picture is taken.
fn size(width: usize, height: usize) -> Result<(usize, usize), TaskError> {
    let pixels = (width as u64).saturating_mul(height as u64);
    if pixels > PIXELS_MAX {
        return Err(TaskError::new(format_args!(
            "the picture has {width} x {height} pixels, at most {PIXELS_MAX} are taken"
        )));
    }
    Ok((width, height))
}

/// Whether there are as many samples as the size says. Nothing else is ever indexed.
fn whole(pixels: Pixels) -> Result<Pixels, TaskError> {
    let wanted = pixels.width * pixels.height * pixels.channels.count();
    if pixels.samples.len() != wanted || wanted == 0 {
        return Err(TaskError::new("the file has not as many pixels as its head says"));
    }
    Ok(pixels)
}

#[cfg(test)]
mod tests;
